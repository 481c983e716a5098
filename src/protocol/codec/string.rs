//! [`Str`]: an immutable string that shares the memory of the frame it came in.
//!
//! What it is not: it does not shrink. A `Str` out of a frame keeps the whole frame
//! alive; what outlives the request takes [`Str::detached`].

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use bytestring::ByteString;

/// A refcounted UTF-8 string: cheap to clone, compared and hashed as `str`.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Str(ByteString);

impl Str {
    /// A string of the program's text; allocates nothing.
    pub const fn from_static(text: &'static str) -> Self {
        Self(ByteString::from_static(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bytes of the text, shared.
    pub fn into_bytes(self) -> Bytes {
        self.0.into_bytes()
    }

    /// A copy that keeps no frame alive: for whatever outlives the request.
    pub fn detached(&self) -> Self {
        Self(ByteString::from(self.as_str().to_owned()))
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self
    }
}

impl std::borrow::Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl From<&'static str> for Str {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(ByteString::from(text))
    }
}

impl TryFrom<Bytes> for Str {
    type Error = std::str::Utf8Error;

    fn try_from(bytes: Bytes) -> Result<Self, Self::Error> {
        ByteString::try_from(bytes).map(Self)
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}
