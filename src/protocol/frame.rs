//! Frames: a length of four bytes, a header, a body.
//!
//! What it is not: it does no I/O, and the limits are the caller's.

use bytes::Bytes;

use super::codec::{EncodeError, Str, Writer};
use super::header::{RequestHeader, ResponseHeader};
use super::messages::Message;

/// Bytes of the length before a frame.
pub const LENGTH_BYTES: usize = 4;

/// A frame length that must not be believed; the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Less than nothing.
    #[error("the frame length {0} is negative")]
    Negative(i32),
    /// More than the caller's limit.
    #[error("a frame of {length} bytes is over the limit of {max}; see socket.request.max.bytes")]
    TooLarge {
        /// The length that is claimed.
        length: usize,
        /// The limit.
        max: usize,
    },
}

/// The length of the frame that follows, checked against a limit in bytes.
pub fn frame_length(prefix: [u8; LENGTH_BYTES], max: usize) -> Result<usize, FrameError> {
    let raw = i32::from_be_bytes(prefix);
    let length = usize::try_from(raw).map_err(|_| FrameError::Negative(raw))?;
    if length > max {
        return Err(FrameError::TooLarge { length, max });
    }
    Ok(length)
}

/// A whole response, length included, in chunks to be sent in order.
pub fn response_frame<M: Message>(
    correlation_id: i32,
    version: i16,
    body: &M,
) -> Result<Vec<Bytes>, EncodeError> {
    debug_assert!(!M::IS_REQUEST);
    frame(|w| {
        ResponseHeader { correlation_id }.encode(w, M::KEY, version);
        body.encode_versioned(w, version)
    })
}

/// A whole request, length included, in chunks to be sent in order.
pub fn request_frame<M: Message>(
    correlation_id: i32,
    client_id: Option<&Str>,
    version: i16,
    body: &M,
) -> Result<Vec<Bytes>, EncodeError> {
    debug_assert!(M::IS_REQUEST);
    frame(|w| {
        RequestHeader {
            api_key: M::KEY.code(),
            api_version: version,
            correlation_id,
            client_id: client_id.cloned(),
        }
        .encode(w)?;
        body.encode_versioned(w, version)
    })
}

fn frame(
    content: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
) -> Result<Vec<Bytes>, EncodeError> {
    let mut w = Writer::new();
    w.put_i32(0);
    content(&mut w)?;
    let length = w.len() - LENGTH_BYTES;
    match i32::try_from(length) {
        Ok(length) => w.patch_i32(0, length),
        Err(_) => {
            return Err(EncodeError::TooLong {
                field: Some("the frame"),
                length,
                max: i32::MAX as usize,
            })
        }
    }
    Ok(w.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::codec::{Reader, Records};
    use crate::protocol::messages::{
        FetchResponse, FetchableTopicResponse, MetadataRequest, PartitionData,
    };
    use crate::protocol::ApiKey;

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(frame_length(7i32.to_be_bytes(), 7), Ok(7));
        assert_eq!(
            frame_length(8i32.to_be_bytes(), 7),
            Err(FrameError::TooLarge { length: 8, max: 7 })
        );
        assert_eq!(
            frame_length((-1i32).to_be_bytes(), 7),
            Err(FrameError::Negative(-1))
        );
    }

    #[test]
    fn a_request_frame_decodes_with_its_header() {
        let chunks = request_frame(5, Some(&"me".into()), 9, &MetadataRequest::default()).unwrap();
        let bytes: Bytes = chunks.concat().into();
        let length = frame_length(bytes[..4].try_into().unwrap(), 1000).unwrap();
        assert_eq!(length, bytes.len() - 4);
        let mut r = Reader::new(bytes.slice(4..));
        let header = RequestHeader::decode(&mut r).unwrap();
        assert_eq!(header.served(), Ok(ApiKey::Metadata));
        MetadataRequest::decode(&mut r, 9).unwrap();
    }

    #[test]
    fn record_slices_are_sent_as_they_are() {
        let slices = [Bytes::from(vec![1; 100]), Bytes::from(vec![2; 50])];
        for version in FetchResponse::VERSIONS {
            let partition = PartitionData {
                records: Some(Records::from_iter(slices.clone())),
                ..Default::default()
            };
            let response = FetchResponse {
                responses: vec![FetchableTopicResponse {
                    partitions: vec![partition.clone(), partition],
                    ..Default::default()
                }],
                ..Default::default()
            };
            let chunks = response_frame(1, version, &response).unwrap();
            for (chunk, slice) in [(1, 0), (2, 1), (4, 0), (5, 1)] {
                assert_eq!(chunks[chunk].as_ptr(), slices[slice].as_ptr());
            }
            let bytes: Bytes = chunks.concat().into();
            let mut r = Reader::new(bytes.slice(4..));
            ResponseHeader::decode(&mut r, ApiKey::Fetch, version).unwrap();
            assert_eq!(FetchResponse::decode(&mut r, version), Ok(response));
        }
    }
}
