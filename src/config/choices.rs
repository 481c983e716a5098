//! Settings whose values are words.

use std::fmt;
use std::str::FromStr;

/// An enum whose variants stand for the words of a setting; a word is read in exactly the case it is written in.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The words that a configuration may hold.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word that stands for it in a configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(format!("must be one of {}", $name::WORDS.join(", "))),
                }
            }
        }
    };
}

choice! {
    /// Which acknowledgements wait for the flush (`flush.on.ack`).
    FlushOnAck {
        /// `acks=all` waits for the flush, `acks=1` for the write. The default.
        #[default]
        All = "all",
        /// `acks=1` waits for the flush too.
        Any = "any",
        /// No acknowledgement waits for a flush: Kafka's way.
        None = "none",
    }
}

choice! {
    /// Which time a record's timestamp is (`message.timestamp.type`).
    MessageTimestampType {
        /// The producer's. The default.
        #[default]
        CreateTime = "CreateTime",
        /// The broker's, when it takes the batch.
        LogAppendTime = "LogAppendTime",
    }
}

choice! {
    /// How a topic's batches are compressed (`compression.type`).
    TopicCompression {
        /// As the producer compressed them. The default.
        #[default]
        Producer = "producer",
        /// Not at all.
        Uncompressed = "uncompressed",
        /// With gzip, at `compression.gzip.level`.
        Gzip = "gzip",
        /// With Snappy, which has no levels.
        Snappy = "snappy",
        /// With LZ4, at `compression.lz4.level`.
        Lz4 = "lz4",
        /// With Zstandard, at `compression.zstd.level`.
        Zstd = "zstd",
    }
}
