//! The bounded codec: [`Reader`] over one frame, [`Writer`] for one frame, the
//! field types, and the [`messages!`](crate::protocol::codec::messages) macro
//! that states a message once and yields its struct, decode and encode.
//!
//! Safe because nothing is reserved on the word of the peer alone: a count is
//! checked against the bytes that remain (each element has a least size on the
//! wire), its memory is charged to the frame's budget, and only then reserved.
//!
//! What it is not: it knows no message; those are in [`crate::protocol::messages`]
//! and, for records that never leave a broker, in the rooms that own them.

mod error;
mod macros;
mod reader;
mod records;
#[cfg(test)]
pub(crate) mod sample;
mod string;
mod types;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub(crate) use macros::{
    field_default, field_ignorable, field_null_check, field_tag, field_versions, messages,
};
pub use reader::{Reader, BUDGET_BASE_BYTES, BUDGET_FACTOR, DEPTH_MAX};
pub use records::Records;
pub use string::Str;
pub use writer::Writer;

use std::ops::RangeInclusive;

/// How a value is laid out: the version of its message, and whether that version
/// is flexible (compact lengths and tagged fields, KIP-482).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The message's version.
    pub version: i16,
    /// Whether this version is a flexible one.
    pub flexible: bool,
}

/// A type that can be a field of a message.
pub trait Wire: Sized {
    /// The fewest bytes that a value takes on the wire: what bounds a count.
    fn wire_size_min(cx: Context) -> usize;

    /// Reads a value; fails if the bytes do not hold one.
    fn read(r: &mut Reader, cx: Context) -> Result<Self, DecodeError>;

    /// Writes the value; fails if this version cannot express it.
    fn write(&self, w: &mut Writer, cx: Context) -> Result<(), EncodeError>;
}

/// A type whose place on the wire can hold null; it makes `Option<Self>` a field type.
pub trait Nullable: Wire {
    /// Reads a value or null.
    fn read_nullable(r: &mut Reader, cx: Context) -> Result<Option<Self>, DecodeError>;

    /// Writes a value or null.
    fn write_nullable(value: Option<&Self>, w: &mut Writer, cx: Context)
        -> Result<(), EncodeError>;
}

/// What has versions of its own: a request, a response, or a record of the broker.
pub trait Versioned: Wire + Default + Clone + std::fmt::Debug + PartialEq {
    /// The type's name, for errors.
    const NAME: &'static str;
    /// The versions that can be decoded and encoded.
    const VERSIONS: RangeInclusive<i16>;
    /// The first flexible version; `i16::MAX` if there is none.
    const FLEXIBLE_FROM: i16;

    /// The layout of `version`.
    fn context(version: i16) -> Context {
        Context {
            version,
            flexible: version >= Self::FLEXIBLE_FROM,
        }
    }

    /// Decodes the rest of the reader as one value of `version`.
    ///
    /// Fails on a version outside [`Self::VERSIONS`], on bytes that are not such a
    /// value, and on bytes left over.
    fn decode_versioned(r: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        let value = Self::decode_prefix(r, version)?;
        r.finish().map_err(|e| e.in_field(Self::NAME))?;
        Ok(value)
    }

    /// The same, but leaves the bytes behind the value alone.
    fn decode_prefix(r: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        if !Self::VERSIONS.contains(&version) {
            let message = Self::NAME;
            let error = r.error(DecodeErrorKind::UnsupportedVersion { message, version });
            return Err(error.in_field(message));
        }
        Self::read(r, Self::context(version)).map_err(|e| e.in_field(Self::NAME))
    }

    /// Encodes the value in `version`.
    ///
    /// Fails on a version outside [`Self::VERSIONS`], and where a field holds what
    /// that version cannot express and Kafka's schema does not let it be ignored.
    fn encode_versioned(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
        if !Self::VERSIONS.contains(&version) {
            return Err(EncodeError::UnsupportedVersion {
                message: Self::NAME,
                version,
            });
        }
        self.write(w, Self::context(version))
    }
}
