//! The topics that a consumer says it reads, out of the metadata that it joins with.

use crate::protocol::{DecodeError, Reader};
use bytes::Bytes;
use std::collections::BTreeSet;

/// The topics that the members of a group are subscribed to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Subscriptions {
    /// These.
    Topics(BTreeSet<String>),
    /// Consumers whose metadata can't be read: any topic could be one of theirs.
    Unknown,
}

impl Subscriptions {
    /// Those of members with this metadata.
    pub fn of(members: impl Iterator<Item = Bytes>) -> Subscriptions {
        let mut topics = BTreeSet::new();
        for metadata in members {
            match subscribed(metadata, &mut topics) {
                Ok(()) => {}
                Err(_) => return Subscriptions::Unknown,
            }
        }
        Subscriptions::Topics(topics)
    }

    /// Nobody is subscribed to anything.
    pub fn none() -> Subscriptions {
        Subscriptions::Topics(BTreeSet::new())
    }

    pub fn contain(&self, topic: &str) -> bool {
        match self {
            Subscriptions::Topics(topics) => topics.contains(topic),
            Subscriptions::Unknown => true,
        }
    }

    pub fn are_known(&self) -> bool {
        *self != Subscriptions::Unknown
    }
}

/// Kafka's `ConsumerProtocolSubscription`: version, then topics; what follows is of later
/// versions. Nothing is reserved on the word of the client.
fn subscribed(metadata: Bytes, topics: &mut BTreeSet<String>) -> Result<(), DecodeError> {
    let mut r = Reader::new(metadata);
    let _version = r.read_i16()?;
    for _ in 0..r.read_i32()?.max(0) {
        let length = r.read_u16()?;
        let name = r.read_slice(usize::from(length))?;
        let name = String::from_utf8_lossy(&name);
        if !topics.contains(&*name) {
            topics.insert(name.into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn topics(names: &[&str]) -> Subscriptions {
        Subscriptions::Topics(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn topics_are_read_whatever_follows_and_broken_metadata_is_told() {
        let a_b = Bytes::from_static(b"\0\x03\0\0\0\x02\0\x01a\0\x01b\xff\xff\xff\xff more");
        let b_c = Bytes::from_static(b"\0\0\0\0\0\x02\0\x01b\0\x01c");
        let none = Bytes::from_static(b"\0\0\0\0\0\0");
        let all = [a_b.clone(), b_c, none];
        assert_eq!(Subscriptions::of(all.into_iter()), topics(&["a", "b", "c"]));
        assert_eq!(Subscriptions::of([].into_iter()), topics(&[]));
        for broken in [
            &b""[..],
            b"\0",
            b"\0\0\0\0\0\x01",
            b"\0\0\x7f\xff\xff\xff\0\x01a",
        ] {
            let members = [a_b.clone(), Bytes::from_static(broken)];
            let subscriptions = Subscriptions::of(members.into_iter());
            assert_eq!(subscriptions, Subscriptions::Unknown);
            assert!(subscriptions.contain("anything"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            // It may only not panic.
            let _ = Subscriptions::of([Bytes::from(bytes)].into_iter());
        }
    }
}
