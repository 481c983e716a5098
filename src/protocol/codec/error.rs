//! Why bytes could not be decoded, or a value could not be encoded.
//!
//! What it is not: these are errors of form. What a well-formed request may not
//! ask for is answered with a [`crate::protocol::ErrorCode`].

/// Bytes that are not what they should be. The connection that sent them is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {}: {kind} at byte {position} of the frame", field.unwrap_or("the frame"))]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Where the value that is wrong starts, in bytes from the start of the reader's frame.
    pub position: usize,
    /// The innermost field that was being read, as `Struct.field`.
    pub field: Option<&'static str>,
}

impl DecodeError {
    /// Names the field, unless an inner one is named already.
    #[cold]
    pub fn in_field(mut self, field: &'static str) -> Self {
        self.field.get_or_insert(field);
        self
    }
}

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The value needs more bytes than there are.
    #[error("{needed} bytes are needed and {remaining} remain")]
    Truncated {
        /// Bytes that the value needs.
        needed: usize,
        /// Bytes that remain.
        remaining: usize,
    },
    /// A length or count below -1.
    #[error("the length {0} is negative")]
    NegativeLength(i64),
    /// A count that the remaining bytes cannot hold.
    #[error(
        "{count} elements of at least {size_min} bytes are claimed and {remaining} bytes remain"
    )]
    CountTooLarge {
        /// The count that is claimed.
        count: usize,
        /// The fewest bytes of an element.
        size_min: usize,
        /// Bytes that remain.
        remaining: usize,
    },
    /// Null where this version has none.
    #[error("null is not allowed here in version {version}")]
    UnexpectedNull {
        /// The message's version.
        version: i16,
    },
    /// A varint of more bits than its type has.
    #[error("a varint is longer than its type")]
    VarintOverflow,
    /// A string that is not UTF-8.
    #[error("the string is not valid UTF-8")]
    InvalidUtf8,
    /// A tagged field that is longer or shorter than its value.
    #[error("tagged field {tag} claims {claimed} bytes and its value takes {used}")]
    TagSize {
        /// The tag.
        tag: u32,
        /// The size that is claimed.
        claimed: usize,
        /// The size that the value takes.
        used: usize,
    },
    /// Structs nested deeper than any message is.
    #[error("structs are nested more than {max} deep")]
    TooDeep {
        /// The limit.
        max: u8,
    },
    /// The decoded value would take more memory than the frame's budget.
    #[error(
        "{needed} more bytes of memory are needed and {left} are left of the frame's decode budget"
    )]
    OverBudget {
        /// Bytes of memory needed.
        needed: usize,
        /// Bytes of memory left.
        left: usize,
    },
    /// Bytes after the end of the value.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// A version that this message does not have.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
}

/// A value that cannot be written: a mistake of the caller, not of the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A version that this message does not have.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// The field is set, and the version does not have it.
    #[error("{field} is set, but version {version} does not have it")]
    NotInVersion {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// The field is null, and may not be in this version.
    #[error("{field} is null, which version {version} does not allow")]
    NullNotAllowed {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A string, byte field or array that is longer than its length can say.
    #[error("{} has {length} bytes or elements; at most {max} can be expressed", field.unwrap_or("a value"))]
    TooLong {
        /// The field, as `Struct.field`.
        field: Option<&'static str>,
        /// Its length.
        length: usize,
        /// The longest that can be expressed.
        max: usize,
    },
}

impl EncodeError {
    /// Names the field, unless an inner one is named already.
    #[cold]
    pub fn in_field(mut self, name: &'static str) -> Self {
        if let EncodeError::TooLong { field, .. } = &mut self {
            field.get_or_insert(name);
        }
        self
    }
}
