//! Room: protocol. Kafka's wire: frames, headers, messages, error codes and the
//! record batch.
//!
//! This room is the security boundary: all that a peer sends is read here first.
//! Every length and count is checked against the bytes that are there before
//! anything is reserved, what a frame may grow to in memory is budgeted, and no
//! input panics. Record bytes pass through as refcounted slices, never copied.
//!
//! What it is not: it reads no socket, knows no partition, and decides nothing
//! about a request beyond its form.

pub mod api;
pub mod batch;
pub mod codec;
pub mod error_code;
pub mod frame;
pub mod header;
pub mod messages;

pub use api::{served_apis, ApiKey, ServedApi, UnservedApi};
pub use codec::{DecodeError, DecodeErrorKind, EncodeError, Reader, Records, Str, Writer};
pub use error_code::ErrorCode;
pub use frame::{frame_length, request_frame, response_frame, FrameError};
pub use header::{RequestHeader, ResponseHeader};
pub use messages::Message;
