//! How each field type lies on the wire.

use bytes::Bytes;
use uuid::Uuid;

use super::{
    Context, DecodeError, DecodeErrorKind, EncodeError, Nullable, Reader, Records, Str, Wire,
    Writer,
};

macro_rules! fixed {
    ($($type:ty: $size:literal, $read:ident, $put:ident;)*) => {$(
        impl Wire for $type {
            fn wire_size_min(_: Context) -> usize {
                $size
            }

            #[inline]
            fn read(r: &mut Reader, _: Context) -> Result<Self, DecodeError> {
                r.$read()
            }

            #[inline]
            fn write(&self, w: &mut Writer, _: Context) -> Result<(), EncodeError> {
                w.$put(*self);
                Ok(())
            }
        }
    )*};
}

fixed! {
    bool: 1, read_bool, put_bool;
    i8: 1, read_i8, put_i8;
    i16: 2, read_i16, put_i16;
    u16: 2, read_u16, put_u16;
    i32: 4, read_i32, put_i32;
    u32: 4, read_u32, put_u32;
    i64: 8, read_i64, put_i64;
    f64: 8, read_f64, put_f64;
    Uuid: 16, read_uuid, put_uuid;
}

/// The parts of [`Wire`] that follow from [`Nullable`].
macro_rules! never_null {
    () => {
        #[inline]
        fn read(r: &mut Reader, cx: Context) -> Result<Self, DecodeError> {
            let start = r.position();
            match Self::read_nullable(r, cx)? {
                Some(value) => Ok(value),
                None => Err(unexpected_null(start, cx)),
            }
        }

        #[inline]
        fn write(&self, w: &mut Writer, cx: Context) -> Result<(), EncodeError> {
            Self::write_nullable(Some(self), w, cx)
        }
    };
}

impl Wire for Str {
    fn wire_size_min(cx: Context) -> usize {
        if cx.flexible {
            1
        } else {
            2
        }
    }

    never_null!();
}

impl Nullable for Str {
    fn read_nullable(r: &mut Reader, cx: Context) -> Result<Option<Self>, DecodeError> {
        let length = if cx.flexible {
            r.read_length(true)?
        } else {
            r.read_length_short()?
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let start = r.position();
        let bytes = r.read_slice(length)?;
        match Str::try_from(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(DecodeError {
                kind: DecodeErrorKind::InvalidUtf8,
                position: start,
                field: None,
            }),
        }
    }

    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        cx: Context,
    ) -> Result<(), EncodeError> {
        w.put_length_short(value.map(|text| text.len()), cx.flexible)?;
        if let Some(text) = value {
            w.put_slice(text.as_bytes());
        }
        Ok(())
    }
}

impl Wire for Bytes {
    fn wire_size_min(cx: Context) -> usize {
        length_size_min(cx)
    }

    never_null!();
}

impl Nullable for Bytes {
    fn read_nullable(r: &mut Reader, cx: Context) -> Result<Option<Self>, DecodeError> {
        match r.read_length(cx.flexible)? {
            Some(length) => r.read_slice(length).map(Some),
            None => Ok(None),
        }
    }

    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        cx: Context,
    ) -> Result<(), EncodeError> {
        w.put_length(value.map(Bytes::len), cx.flexible)?;
        if let Some(bytes) = value {
            w.put_slice(bytes);
        }
        Ok(())
    }
}

impl Wire for Records {
    fn wire_size_min(cx: Context) -> usize {
        length_size_min(cx)
    }

    never_null!();
}

impl Nullable for Records {
    fn read_nullable(r: &mut Reader, cx: Context) -> Result<Option<Self>, DecodeError> {
        Ok(Bytes::read_nullable(r, cx)?.map(Records::from))
    }

    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        cx: Context,
    ) -> Result<(), EncodeError> {
        w.put_length(value.map(Records::len), cx.flexible)?;
        if let Some(records) = value {
            w.put_records(records);
        }
        Ok(())
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn wire_size_min(cx: Context) -> usize {
        length_size_min(cx)
    }

    never_null!();
}

impl<T: Wire> Nullable for Vec<T> {
    fn read_nullable(r: &mut Reader, cx: Context) -> Result<Option<Self>, DecodeError> {
        let Some(count) = r.read_length(cx.flexible)? else {
            return Ok(None);
        };
        let mut elements = r.reserve(count, T::wire_size_min(cx))?;
        for _ in 0..count {
            elements.push(T::read(r, cx)?);
        }
        Ok(Some(elements))
    }

    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        cx: Context,
    ) -> Result<(), EncodeError> {
        w.put_length(value.map(Vec::len), cx.flexible)?;
        for element in value.into_iter().flatten() {
            element.write(w, cx)?;
        }
        Ok(())
    }
}

impl<T: Nullable> Wire for Option<T> {
    fn wire_size_min(cx: Context) -> usize {
        // A null struct takes one byte; a null of any other type as much as an empty one.
        T::wire_size_min(cx).min(length_size_min(cx)).max(1)
    }

    fn read(r: &mut Reader, cx: Context) -> Result<Self, DecodeError> {
        T::read_nullable(r, cx)
    }

    fn write(&self, w: &mut Writer, cx: Context) -> Result<(), EncodeError> {
        T::write_nullable(self.as_ref(), w, cx)
    }
}

fn length_size_min(cx: Context) -> usize {
    if cx.flexible {
        1
    } else {
        4
    }
}

#[cold]
fn unexpected_null(position: usize, cx: Context) -> DecodeError {
    DecodeError {
        kind: DecodeErrorKind::UnexpectedNull {
            version: cx.version,
        },
        position,
        field: None,
    }
}
