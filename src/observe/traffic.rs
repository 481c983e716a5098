//! What went into one partition and out of it. Added to by the thread that owns the partition.

use super::counters::Count;

macro_rules! traffic {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of one partition since it was opened.
        #[derive(Debug, Default)]
        pub struct Traffic {
            $($(#[$doc])* pub $name: Count,)*
        }

        /// The counts of one partition at one moment, or of a topic's added together.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct TrafficSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Traffic {
            /// The counts now.
            pub fn snapshot(&self) -> TrafficSnapshot {
                TrafficSnapshot { $($name: self.$name.get(),)* }
            }
        }

        impl TrafficSnapshot {
            /// Adds another's.
            pub fn merge(&mut self, other: &TrafficSnapshot) {
                $(self.$name += other.$name;)*
            }

            /// What has come since an earlier one.
            pub fn since(&self, earlier: &TrafficSnapshot) -> TrafficSnapshot {
                TrafficSnapshot { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

traffic! {
    /// Bytes of record batches appended.
    in_bytes,
    /// Records appended.
    in_records,
    /// Record batches appended.
    in_batches,
    /// Record batches refused by validation or by a failed write.
    in_errors,
    /// Bytes of record batches read for consumers.
    out_bytes,
    /// Records read for consumers.
    out_records,
    /// Record batches read for consumers.
    out_batches,
    /// Reads refused or failed.
    out_errors,
}
