//! Unit tests of compression.

use super::*;

const LIMIT: usize = 1 << 20;

#[test]
fn every_codec_gives_back_what_it_took() {
    let text: Vec<u8> = (0..200_000u32).map(|i| (i / 7 % 251) as u8).collect();
    for codec in Compression::ALL {
        for input in [&text[..], &text[..1], b""] {
            let packed = compress(codec, input).unwrap();
            assert_eq!(
                decompress(codec, &packed, input.len()).unwrap(),
                input,
                "{codec:?}"
            );
            if !input.is_empty() {
                let limit = input.len() - 1;
                let error = decompress(codec, &packed, limit).unwrap_err();
                assert_eq!(error, DecompressError::TooLarge { limit }, "{codec:?}");
            }
        }
    }
}

#[test]
fn cut_off_or_damaged_input_is_an_error() {
    let text: Vec<u8> = (0..5000u32).map(|i| (i * i % 251) as u8).collect();
    for codec in Compression::ALL.into_iter().skip(1) {
        let packed = compress(codec, &text).unwrap();
        let end = packed.len();
        for cut in 1..end {
            let got = decompress(codec, &packed[..cut], LIMIT);
            // Xerial framing without a block is whole, and empty.
            let is_refused = got.map_or(true, |out| codec == Compression::Snappy && out.is_empty());
            assert!(is_refused, "{codec:?} cut at {cut} of {end}");
        }
        let mut longer = packed.clone();
        longer.extend(b"garbage!");
        assert!(decompress(codec, &longer, LIMIT).is_err(), "{codec:?}");
        assert!(
            decompress(codec, b"no such thing as this", LIMIT).is_err(),
            "{codec:?}"
        );
    }
}

#[test]
fn a_zstd_context_carries_nothing_over_from_a_refused_batch() {
    let text = vec![b'x'; 300_000];
    let packed = compress(Compression::Zstd, &text).unwrap();
    for _ in 0..3 {
        let half = &packed[..packed.len() / 2];
        decompress(Compression::Zstd, half, LIMIT).unwrap_err();
        decompress(Compression::Zstd, &packed, 1000).unwrap_err();
        decompress(Compression::Zstd, b"garbage", LIMIT).unwrap_err();
        assert_eq!(
            decompress(Compression::Zstd, &packed, LIMIT),
            Ok(text.clone())
        );
    }
}

#[test]
fn snappy_is_read_raw_and_in_xerial_framing() {
    // "snappy" by hand: length 6, a literal of 6 bytes.
    let raw = [6, 5 << 2, b's', b'n', b'a', b'p', b'p', b'y'];
    assert_eq!(decompress(Compression::Snappy, &raw, 6).unwrap(), b"snappy");

    let framed = |blocks: &[&[u8]]| {
        let mut bytes = vec![
            0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
        ];
        for block in blocks {
            bytes.extend((block.len() as i32).to_be_bytes());
            bytes.extend(*block);
        }
        bytes
    };
    let two = framed(&[&raw, &raw]);
    assert_eq!(
        decompress(Compression::Snappy, &two, 12).unwrap(),
        b"snappysnappy"
    );
    let limit = 11;
    assert_eq!(
        decompress(Compression::Snappy, &two, limit),
        Err(DecompressError::TooLarge { limit })
    );
    // A prefix that claims 4 GiB, with a limit that would allow it.
    let claims = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    for bytes in [&claims[..], &framed(&[&claims])] {
        let error = decompress(Compression::Snappy, bytes, usize::MAX).unwrap_err();
        assert!(
            matches!(error, DecompressError::Malformed { .. }),
            "{error}"
        );
    }
    for block_length in [-1i32, 9, i32::MAX] {
        let mut bytes = framed(&[]);
        bytes.extend(block_length.to_be_bytes());
        bytes.extend(raw);
        assert!(decompress(Compression::Snappy, &bytes, LIMIT).is_err());
    }
    assert!(decompress(Compression::Snappy, &framed(&[])[..12], LIMIT).is_err());
}

#[test]
fn levels_change_the_size_and_not_the_content() {
    let mut state = 1u64;
    let text: Vec<u8> = (0..30_000)
        .flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            format!("word{} ", (state >> 33) % 900).into_bytes()
        })
        .collect();
    let packed = |compression, level| {
        let mut out = Vec::new();
        let mut pieces = Pieces::new(Compression::None, &text, text.len());
        let encoding = Encoding { compression, level };
        let bytes = text.len();
        let done = compress_into(
            encoding,
            &mut pieces,
            bytes,
            &mut out,
            usize::MAX,
            async || {},
        );
        futures_lite::future::block_on(done).unwrap();
        assert_eq!(decompress(compression, &out, text.len()).unwrap(), text);
        out.len()
    };
    assert!(packed(Compression::Gzip, 9) < packed(Compression::Gzip, 1));
    assert_eq!(packed(Compression::Gzip, -1), packed(Compression::Gzip, 6));
    assert!(packed(Compression::Zstd, 12) < packed(Compression::Zstd, 1));
    assert!(packed(Compression::Zstd, 1) < packed(Compression::Zstd, -100));
    // Beyond what there is: the nearest.
    assert_eq!(packed(Compression::Zstd, 3), packed(Compression::Zstd, 3));
    packed(Compression::Zstd, i32::MIN);
    packed(Compression::Gzip, i32::MAX);
    assert_eq!(packed(Compression::Lz4, 1), packed(Compression::Lz4, 17));
}

#[test]
fn the_highest_zstd_levels_take_memory_by_the_batch() {
    let text = vec![b'x'; 300_000];
    let mut out = Vec::new();
    let mut pieces = Pieces::new(Compression::None, &text, text.len());
    let encoding = Encoding {
        compression: Compression::Zstd,
        level: 22,
    };
    let bytes = text.len();
    let done = compress_into(
        encoding,
        &mut pieces,
        bytes,
        &mut out,
        usize::MAX,
        async || {},
    );
    futures_lite::future::block_on(done).unwrap();
    // A window for more than there is would be told in the frame: every reader would
    // have to make room for it.
    let window = zstd::zstd_safe::get_frame_content_size(&out);
    assert_eq!(
        window.ok().flatten(),
        Some(text.len() as u64),
        "the size was told"
    );
    assert!(decompress(Compression::Zstd, &out, LIMIT).unwrap() == text);
}

/// An LZ4 frame as `lz4_flex` writes it.
fn lz4_frame(info: lz4_flex::frame::FrameInfo, input: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    std::io::Write::write_all(&mut encoder, input).unwrap();
    encoder.finish().unwrap()
}

fn words(count: usize) -> Vec<u8> {
    let mut state = 1u64;
    let words = (0..count).flat_map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("word{} ", (state >> 33) % 900).into_bytes()
    });
    words.collect()
}

#[test]
fn lz4_frames_of_every_shape_are_read_and_linked_blocks_are_refused() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
    // Several blocks, and some that cannot be compressed.
    let mut text = words(60_000);
    text.extend((0..150_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8));
    let sizes = [
        BlockSize::Max64KB,
        BlockSize::Max256KB,
        BlockSize::Max1MB,
        BlockSize::Max4MB,
    ];
    for block_size in sizes {
        for flags in 0..8 {
            let info = FrameInfo::new()
                .block_size(block_size)
                .block_mode(BlockMode::Independent)
                .block_checksums(flags & 1 != 0)
                .content_checksum(flags & 2 != 0)
                .content_size((flags & 4 != 0).then_some(text.len() as u64));
            let frame = lz4_frame(info.clone(), &text);
            let got = decompress(Compression::Lz4, &frame, text.len());
            assert!(got.as_ref() == Ok(&text), "{block_size:?}, flags {flags}");
            let frame = lz4_frame(info.block_mode(BlockMode::Linked), &text);
            let error = decompress(Compression::Lz4, &frame, text.len()).unwrap_err();
            assert!(error.to_string().contains("linked"), "{error}");
        }
    }
}

/// With checksums of everything no damaged bit goes unnoticed, and none panics; without
/// them, what is accepted is at least what another decoder makes of it.
#[test]
fn damage_to_an_lz4_frame_is_noticed_wherever_it_is() {
    use lz4_flex::frame::{BlockMode, FrameDecoder, FrameInfo};
    let text = words(150);
    for is_checked in [true, false] {
        let info = FrameInfo::new()
            .block_mode(BlockMode::Independent)
            .block_checksums(is_checked)
            .content_checksum(is_checked)
            .content_size(is_checked.then_some(text.len() as u64));
        let frame = lz4_frame(info, &text);
        for at in 0..frame.len() {
            for bit in 0..8 {
                let mut damaged = frame.clone();
                damaged[at] ^= 1 << bit;
                let got = decompress(Compression::Lz4, &damaged, LIMIT);
                if is_checked {
                    assert!(got.is_err(), "bit {bit} of byte {at}");
                } else if let Ok(got) = got {
                    let mut oracle = Vec::new();
                    let mut decoder = FrameDecoder::new(&damaged[..]);
                    std::io::Read::read_to_end(&mut decoder, &mut oracle).unwrap();
                    assert!(got == oracle, "bit {bit} of byte {at}");
                }
            }
        }
    }
}

#[test]
fn an_lz4_block_gets_room_for_what_it_can_make_and_not_for_what_the_frame_claims() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
    let info = FrameInfo::new()
        .block_size(BlockSize::Max4MB)
        .block_mode(BlockMode::Independent);
    let frame = lz4_frame(info, b"a few bytes");
    let mut out = Vec::new();
    let made = lz4::Blocks::new(&frame).next_block(&mut out).unwrap();
    assert_eq!(&out[..made], b"a few bytes");
    assert!(out.capacity() <= 255 * frame.len(), "{}", out.capacity());
}

#[test]
fn gzip_headers_and_members_of_every_shape_are_read() {
    let text = words(30_000);
    let member = |builder: flate2::GzBuilder, input: &[u8]| {
        let mut encoder = builder.write(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, input).unwrap();
        encoder.finish().unwrap()
    };
    let plain = member(flate2::GzBuilder::new(), &text);
    let rich = member(
        flate2::GzBuilder::new()
            .extra(vec![7; 300])
            .filename("a name")
            .comment("a comment")
            .mtime(5),
        &text,
    );
    let empty = member(flate2::GzBuilder::new(), b"");
    // A header with a checksum of its own.
    let mut checked = plain[..10].to_vec();
    checked[3] |= 2;
    let crc = crc32fast::hash(&checked) as u16;
    checked.extend(crc.to_le_bytes());
    checked.extend(&plain[10..]);
    let twice = [&text[..], &text].concat();
    for (members, expected) in [
        (vec![&plain], &text),
        (vec![&rich], &text),
        (vec![&checked], &text),
        (vec![&empty, &rich, &empty, &plain, &empty], &twice),
    ] {
        let input: Vec<u8> = members.into_iter().flatten().copied().collect();
        let got = decompress(Compression::Gzip, &input, expected.len());
        assert!(got.as_ref() == Ok(expected));
        let limit = expected.len() - 1;
        let error = decompress(Compression::Gzip, &input, limit).unwrap_err();
        assert_eq!(error, DecompressError::TooLarge { limit });
        // A header's checksum, the members' checksums and sizes.
        let last = input.len() - empty.len() * usize::from(expected.len() > text.len());
        for at in last - 8..last {
            let mut damaged = input.clone();
            damaged[at] ^= 0x10;
            decompress(Compression::Gzip, &damaged, LIMIT).unwrap_err();
        }
    }
    checked[11] ^= 1;
    decompress(Compression::Gzip, &checked, LIMIT).unwrap_err();
    decompress(Compression::Gzip, b"", LIMIT).unwrap_err();
    // A state that a refused batch has left in the middle of a member.
    for _ in 0..3 {
        decompress(Compression::Gzip, &plain[..plain.len() / 2], LIMIT).unwrap_err();
        decompress(Compression::Gzip, &plain, 1000).unwrap_err();
        let mut garbage = plain.clone();
        garbage[40..].fill(0xff);
        decompress(Compression::Gzip, &garbage, LIMIT).unwrap_err();
        assert!(decompress(Compression::Gzip, &plain, LIMIT).as_ref() == Ok(&text));
    }
}

/// zstd's highest levels name a window of 128 MiB for a stream whose size they do not know,
/// as Java's producer writes it. Kafka takes it.
#[test]
fn the_window_of_the_highest_zstd_levels_is_taken_within_the_largest_limit() {
    use zstd::zstd_safe::CParameter;
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_parameter(CParameter::WindowLog(27)).unwrap();
    std::io::Write::write_all(&mut encoder, b"few").unwrap();
    std::io::Write::flush(&mut encoder).unwrap();
    let packed = encoder.finish().unwrap();
    let limit = super::super::RECORDS_BYTES_MAX;
    assert_eq!(
        decompress(Compression::Zstd, &packed, limit).unwrap(),
        b"few"
    );
    // Where less may come out, so large a window is not made.
    decompress(Compression::Zstd, &packed, 32 << 20).unwrap_err();
}
