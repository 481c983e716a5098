//! [`Records`]: the record bytes of one partition in a Produce request or a Fetch
//! answer, as slices of the frame or of the buffers that hold the log.
//!
//! What it is not: it does not look inside; [`crate::protocol::batch`] does.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

/// Record bytes, in order. Equal when the bytes are, however they are sliced.
#[derive(Clone, Default)]
pub struct Records(SmallVec<[Bytes; 1]>);

impl Records {
    /// No bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a slice.
    pub fn push(&mut self, slice: Bytes) {
        self.0.push(slice);
    }

    /// Total bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// The slices, in order.
    pub fn slices(&self) -> &[Bytes] {
        &self.0
    }

    /// The slices by value, in order.
    pub fn into_slices(self) -> SmallVec<[Bytes; 1]> {
        self.0
    }

    /// All bytes as one slice: shared if there is only one (always so when decoded), else copied.
    pub fn to_bytes(&self) -> Bytes {
        match self.0.as_slice() {
            [] => Bytes::new(),
            [only] => only.clone(),
            many => many.concat().into(),
        }
    }
}

impl From<Bytes> for Records {
    fn from(slice: Bytes) -> Self {
        Self(SmallVec::from_buf([slice]))
    }
}

impl FromIterator<Bytes> for Records {
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        Self(slices.into_iter().collect())
    }
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.0.iter().flatten().eq(other.0.iter().flatten())
    }
}

impl Eq for Records {}

/// The bytes if they are few, as in tests; else only how many, to spare the log.
impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_tuple("Records");
        match self.len() {
            0..=DEBUG_BYTES_MAX => f.field(&self.to_bytes()).finish(),
            length => f.field(&format_args!("{length} bytes")).finish(),
        }
    }
}

const DEBUG_BYTES_MAX: usize = 256;
