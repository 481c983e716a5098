//! Values for tests, drawn from bytes: any bytes give a value that its version can
//! express, and fewer or smaller bytes a simpler one, so that proptest can shrink it.

use bytes::Bytes;
use uuid::Uuid;

use super::{Context, Records, Str};

/// Bytes to draw from; zeros when they run out.
pub(crate) struct Source<'a>(pub &'a [u8]);

/// A type of which a value can be drawn.
pub(crate) trait Sample: Sized {
    fn sample(source: &mut Source, cx: Context) -> Self;
}

impl Source<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// Often few, sometimes more than a varint of one byte can say.
    fn count(&mut self) -> usize {
        match self.byte() {
            255 => 130,
            byte => usize::from(byte % 4),
        }
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Sample for $type {
            fn sample(source: &mut Source, _: Context) -> Self {
                match source.byte() {
                    0 => 0,
                    1..=20 => <$type>::MAX,
                    21..=40 => <$type>::MIN,
                    41..=60 => (0 as $type).wrapping_sub(1),
                    _ => source.word() as $type,
                }
            }
        }
    )*};
}

integers!(i8 i16 u16 i32 u32 i64);

impl Sample for bool {
    fn sample(source: &mut Source, _: Context) -> Self {
        source.byte() % 2 == 1
    }
}

impl Sample for f64 {
    fn sample(source: &mut Source, cx: Context) -> Self {
        f64::from(i32::sample(source, cx)) / 4.0
    }
}

impl Sample for Uuid {
    fn sample(source: &mut Source, _: Context) -> Self {
        Uuid::from_u64_pair(source.word(), source.word())
    }
}

impl Sample for Str {
    fn sample(source: &mut Source, _: Context) -> Self {
        const LETTERS: [char; 8] = ['a', 'b', 'x', '0', '-', 'é', '€', '🌊'];
        let text: String = (0..source.count())
            .map(|_| LETTERS[usize::from(source.byte() % 8)])
            .collect();
        text.into()
    }
}

impl Sample for Bytes {
    fn sample(source: &mut Source, _: Context) -> Self {
        // None of them a letter or a bracket, so that they can be told apart in debug output.
        (0..source.count()).map(|_| source.byte() | 0x80).collect()
    }
}

impl Sample for Records {
    fn sample(source: &mut Source, cx: Context) -> Self {
        // In one piece or in two; they are equal on the wire.
        let bytes = Bytes::sample(source, cx);
        match source.byte() % 2 {
            0 => Records::from(bytes),
            _ => {
                let middle = bytes.len() / 2;
                [bytes.slice(..middle), bytes.slice(middle..)]
                    .into_iter()
                    .collect()
            }
        }
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source, cx: Context) -> Self {
        (0..source.count()).map(|_| T::sample(source, cx)).collect()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(source: &mut Source, cx: Context) -> Self {
        (source.byte() > 60).then(|| T::sample(source, cx))
    }
}
