//! `messages!`: a message is stated once, as in Kafka's schema.
//!
//! ```text
//! messages! {
//!     /// What it asks.
//!     request NameRequest (ApiKeyVariant) versions 3..=13 flexible 9 {
//!         plain: i32,
//!         name: Str => { versions: ..=12, ignorable },
//!         partitions: Option<Vec<Partition>> => { nullable: 1.., default: Some(Vec::new()) },
//!         hint: Leader => { versions: 10.., tag: 0 },
//!     }
//!     /// A struct inside; its versions are those of the message.
//!     struct Partition { index: i32 }
//!     /// A record of the broker itself: versions, and no API key.
//!     record TopicRecord versions 0..=0 flexible 0 { name: Str }
//! }
//! ```
//! An entry is a `request`, a `response`, a `struct` or a `record`. A field's attributes:
//! - `versions: range`: the versions that have it (all, if not given). Outside them it
//!   decodes as its default, and a value that is not the default cannot be encoded,
//! - `ignorable`: ... unless it may be left out without a word,
//! - `nullable: range`: the versions that allow null (all, if not given) for an `Option`,
//! - `default: value`: what it is when absent (the type's own default, if not given),
//! - `tag: n`: a tagged field (KIP-482), written only when it is not the default.
//!   Tags are declared in ascending order.
//!
//! A struct that can be null where it stands (`Option<Partition>`) has Kafka's
//! one-byte marker. `flexible 32767` is for what never became flexible.

macro_rules! messages {
    () => {};
    (
        $(#[$meta:meta])*
        request $name:ident ($key:ident) versions $low:literal ..= $high:literal flexible $flexible:tt
        { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::protocol::codec::messages!(@struct [$(#[$meta])*] $name { $($fields)* });
        $crate::protocol::codec::messages!(@versioned $name, $low, $high, $flexible);
        $crate::protocol::codec::messages!(@message $name, $key, true);
        $crate::protocol::codec::messages!($($rest)*);
    };
    (
        $(#[$meta:meta])*
        response $name:ident ($key:ident) versions $low:literal ..= $high:literal flexible $flexible:tt
        { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::protocol::codec::messages!(@struct [$(#[$meta])*] $name { $($fields)* });
        $crate::protocol::codec::messages!(@versioned $name, $low, $high, $flexible);
        $crate::protocol::codec::messages!(@message $name, $key, false);
        $crate::protocol::codec::messages!($($rest)*);
    };
    (
        $(#[$meta:meta])*
        record $name:ident versions $low:literal ..= $high:literal flexible $flexible:tt
        { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::protocol::codec::messages!(@struct [$(#[$meta])*] $name { $($fields)* });
        $crate::protocol::codec::messages!(@versioned $name, $low, $high, $flexible);
        $crate::protocol::codec::messages!($($rest)*);
    };
    (
        $(#[$meta:meta])*
        struct $name:ident { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::protocol::codec::messages!(@struct [$(#[$meta])*] $name { $($fields)* });
        $crate::protocol::codec::messages!($($rest)*);
    };

    (@versioned $name:ident, $low:literal, $high:literal, $flexible:expr) => {
        #[allow(dead_code)]
        impl $name {
            /// The versions that can be decoded and encoded.
            pub const VERSIONS: std::ops::RangeInclusive<i16> = $low..=$high;
            /// The first flexible version (KIP-482).
            pub const FLEXIBLE_FROM: i16 = $flexible;

            /// Decodes the rest of the reader; fails on a version that is not in
            /// `VERSIONS`, on malformed bytes and on bytes left over.
            pub fn decode(
                r: &mut $crate::protocol::codec::Reader,
                version: i16,
            ) -> Result<Self, $crate::protocol::codec::DecodeError> {
                <Self as $crate::protocol::codec::Versioned>::decode_versioned(r, version)
            }

            /// Encodes in `version`; fails on a version that is not in `VERSIONS`, and
            /// where a field holds what that version cannot express.
            pub fn encode(
                &self,
                w: &mut $crate::protocol::codec::Writer,
                version: i16,
            ) -> Result<(), $crate::protocol::codec::EncodeError> {
                $crate::protocol::codec::Versioned::encode_versioned(self, w, version)
            }
        }

        impl $crate::protocol::codec::Versioned for $name {
            const NAME: &'static str = stringify!($name);
            const VERSIONS: std::ops::RangeInclusive<i16> = $low..=$high;
            const FLEXIBLE_FROM: i16 = $flexible;
        }
    };

    (@message $name:ident, $key:ident, $is_request:literal) => {
        impl $name {
            /// The API that the message belongs to.
            pub const KEY: $crate::protocol::api::ApiKey = $crate::protocol::api::ApiKey::$key;
        }

        impl $crate::protocol::messages::Message for $name {
            const KEY: $crate::protocol::api::ApiKey = $crate::protocol::api::ApiKey::$key;
            const IS_REQUEST: bool = $is_request;
        }
    };

    (@struct [$(#[$meta:meta])*] $name:ident {
        $(
            $(#[$field_meta:meta])*
            $field:ident : $type:ty $(=> { $($attr:tt)* })?
        ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $( $field: $crate::protocol::codec::field_default!($type; $($($attr)*)?), )*
                }
            }
        }

        #[allow(
            clippy::nonminimal_bool,
            clippy::overly_complex_bool_expr,
            unused_mut,
            unused_variables
        )]
        impl $crate::protocol::codec::Wire for $name {
            #[inline]
            fn wire_size_min(cx: $crate::protocol::codec::Context) -> usize {
                let mut size = usize::from(cx.flexible);
                $(
                    if $crate::protocol::codec::field_tag!($($($attr)*)?).is_none()
                        && $crate::protocol::codec::field_versions!(cx.version; $($($attr)*)?)
                    {
                        size += <$type as $crate::protocol::codec::Wire>::wire_size_min(cx);
                    }
                )*
                size
            }

            fn read(
                r: &mut $crate::protocol::codec::Reader,
                cx: $crate::protocol::codec::Context,
            ) -> Result<Self, $crate::protocol::codec::DecodeError> {
                r.enter()?;
                $(
                    let mut $field: $type =
                        if $crate::protocol::codec::field_tag!($($($attr)*)?).is_none()
                            && $crate::protocol::codec::field_versions!(cx.version; $($($attr)*)?)
                        {
                            $crate::protocol::codec::messages!(
                                @read $name, $field, $type, r, cx, { $($($attr)*)? }
                            )
                        } else {
                            $crate::protocol::codec::field_default!($type; $($($attr)*)?)
                        };
                )*
                if cx.flexible {
                    r.read_tags(|r, tag| {
                        $(
                            if $crate::protocol::codec::field_tag!($($($attr)*)?) == Some(tag)
                                && $crate::protocol::codec::field_versions!(cx.version; $($($attr)*)?)
                            {
                                $field = $crate::protocol::codec::messages!(
                                    @read $name, $field, $type, r, cx, { $($($attr)*)? }
                                );
                                return Ok(true);
                            }
                        )*
                        Ok(false)
                    })
                    .map_err(|e| e.in_field(concat!(stringify!($name), "'s tagged fields")))?;
                }
                r.leave();
                Ok(Self { $($field),* })
            }

            fn write(
                &self,
                w: &mut $crate::protocol::codec::Writer,
                cx: $crate::protocol::codec::Context,
            ) -> Result<(), $crate::protocol::codec::EncodeError> {
                let mut tags = 0u32;
                $({
                    const NAME: &str = concat!(stringify!($name), ".", stringify!($field));
                    let is_present =
                        $crate::protocol::codec::field_versions!(cx.version; $($($attr)*)?);
                    let tag: Option<u32> = $crate::protocol::codec::field_tag!($($($attr)*)?);
                    if is_present && tag.is_none() {
                        $crate::protocol::codec::field_null_check!(
                            self.$field, cx.version,
                            $crate::protocol::codec::EncodeError::NullNotAllowed {
                                field: NAME,
                                version: cx.version,
                            };
                            $($($attr)*)?
                        );
                        $crate::protocol::codec::Wire::write(&self.$field, w, cx)
                            .map_err(|e| e.in_field(NAME))?;
                    } else if is_present {
                        tags += u32::from(
                            self.$field
                                != $crate::protocol::codec::field_default!($type; $($($attr)*)?),
                        );
                    } else if !$crate::protocol::codec::field_ignorable!($($($attr)*)?)
                        && self.$field
                            != $crate::protocol::codec::field_default!($type; $($($attr)*)?)
                    {
                        return Err($crate::protocol::codec::EncodeError::NotInVersion {
                            field: NAME,
                            version: cx.version,
                        });
                    }
                })*
                if !cx.flexible {
                    return Ok(());
                }
                w.put_uvarint(tags);
                if tags == 0 {
                    return Ok(());
                }
                $(
                    if let Some(tag) = $crate::protocol::codec::field_tag!($($($attr)*)?) {
                        if $crate::protocol::codec::field_versions!(cx.version; $($($attr)*)?)
                            && self.$field
                                != $crate::protocol::codec::field_default!($type; $($($attr)*)?)
                        {
                            w.put_tag(tag, |w| {
                                $crate::protocol::codec::Wire::write(&self.$field, w, cx)
                            })
                            .map_err(|e| {
                                e.in_field(concat!(stringify!($name), ".", stringify!($field)))
                            })?;
                        }
                    }
                )*
                Ok(())
            }
        }

        #[cfg(test)]
        #[allow(clippy::redundant_closure_call, unused_mut)]
        impl $crate::protocol::codec::sample::Sample for $name {
            fn sample(
                source: &mut $crate::protocol::codec::sample::Source,
                cx: $crate::protocol::codec::Context,
            ) -> Self {
                let mut sample = Self::default();
                $(
                    if $crate::protocol::codec::field_versions!(cx.version; $($($attr)*)?) {
                        let value =
                            <$type as $crate::protocol::codec::sample::Sample>::sample(source, cx);
                        let allowed = (|| -> Result<(), ()> {
                            $crate::protocol::codec::field_null_check!(
                                value, cx.version, (); $($($attr)*)?
                            );
                            Ok(())
                        })();
                        if allowed.is_ok() {
                            sample.$field = value;
                        }
                    }
                )*
                sample
            }
        }

        impl $crate::protocol::codec::Nullable for $name {
            fn read_nullable(
                r: &mut $crate::protocol::codec::Reader,
                cx: $crate::protocol::codec::Context,
            ) -> Result<Option<Self>, $crate::protocol::codec::DecodeError> {
                if r.read_i8()? < 0 {
                    return Ok(None);
                }
                <Self as $crate::protocol::codec::Wire>::read(r, cx).map(Some)
            }

            fn write_nullable(
                value: Option<&Self>,
                w: &mut $crate::protocol::codec::Writer,
                cx: $crate::protocol::codec::Context,
            ) -> Result<(), $crate::protocol::codec::EncodeError> {
                match value {
                    Some(value) => {
                        w.put_i8(1);
                        $crate::protocol::codec::Wire::write(value, w, cx)
                    }
                    None => {
                        w.put_i8(-1);
                        Ok(())
                    }
                }
            }
        }
    };

    (@read $name:ident, $field:ident, $type:ty, $r:ident, $cx:ident, { $($attr:tt)* }) => {{
        const NAME: &str = concat!(stringify!($name), ".", stringify!($field));
        let start = $r.position();
        let value = <$type as $crate::protocol::codec::Wire>::read($r, $cx)
            .map_err(|e| e.in_field(NAME))?;
        $crate::protocol::codec::field_null_check!(
            value, $cx.version,
            $crate::protocol::codec::DecodeError {
                kind: $crate::protocol::codec::DecodeErrorKind::UnexpectedNull {
                    version: $cx.version,
                },
                position: start,
                field: Some(NAME),
            };
            $($attr)*
        );
        value
    }};
}

/// Whether the version has the field.
macro_rules! field_versions {
    ($version:expr;) => { true };
    ($version:expr; versions: $range:expr $(, $($rest:tt)*)?) => { ($range).contains(&$version) };
    ($version:expr; $other:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_versions!($version; $($($rest)*)?)
    };
    ($version:expr; $other:ident $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_versions!($version; $($($rest)*)?)
    };
}

/// The field's tag, if it is a tagged one.
macro_rules! field_tag {
    () => { None::<u32> };
    (tag: $tag:expr $(, $($rest:tt)*)?) => { Some::<u32>($tag) };
    ($other:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_tag!($($($rest)*)?)
    };
    ($other:ident $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_tag!($($($rest)*)?)
    };
}

/// Whether the field may be left out, whatever it holds, where the version has no place for it.
macro_rules! field_ignorable {
    () => { false };
    (ignorable $(, $($rest:tt)*)?) => { true };
    ($other:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_ignorable!($($($rest)*)?)
    };
}

/// The field's default.
macro_rules! field_default {
    ($type:ty;) => { <$type as Default>::default() };
    ($type:ty; default: $value:expr $(, $($rest:tt)*)?) => { $value };
    ($type:ty; $other:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_default!($type; $($($rest)*)?)
    };
    ($type:ty; $other:ident $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_default!($type; $($($rest)*)?)
    };
}

/// Returns the error if the value is null in a version that does not allow it.
macro_rules! field_null_check {
    ($value:expr, $version:expr, $error:expr;) => {};
    ($value:expr, $version:expr, $error:expr; nullable: $range:expr $(, $($rest:tt)*)?) => {
        if $value.is_none() && !($range).contains(&$version) {
            return Err($error);
        }
    };
    ($value:expr, $version:expr, $error:expr; $other:ident : $attr:expr $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_null_check!($value, $version, $error; $($($rest)*)?)
    };
    ($value:expr, $version:expr, $error:expr; $other:ident $(, $($rest:tt)*)?) => {
        $crate::protocol::codec::field_null_check!($value, $version, $error; $($($rest)*)?)
    };
}

pub(crate) use {
    field_default, field_ignorable, field_null_check, field_tag, field_versions, messages,
};
