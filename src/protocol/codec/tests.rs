//! Unit tests of the codec and of the macro, with messages that exist only here.

use bytes::Bytes;
use uuid::Uuid;

use super::*;

messages! {
    /// One field of every type, and what else a record can have.
    record Everything versions 0..=3 flexible 2 {
        a_bool: bool,
        an_i8: i8,
        an_i16: i16,
        a_u16: u16,
        an_i32: i32,
        a_u32: u32,
        an_i64: i64,
        an_f64: f64,
        a_uuid: Uuid,
        a_str: Str,
        a_nullable_str: Option<Str> => { nullable: 1.. },
        some_bytes: Bytes,
        nullable_bytes: Option<Bytes>,
        records: Option<Records>,
        numbers: Vec<i32>,
        strings: Option<Vec<Str>>,
        part: Part,
        maybe_part: Option<Part>,
        late: i32 => { versions: 1.., default: 7 },
        late_and_ignorable: i32 => { ignorable, versions: 1.. },
        tagged: Str => { versions: 2.., tag: 0 },
        tagged_part: Option<Part> => { tag: 5, versions: 3.., default: None },
    }

    /// A part.
    struct Part {
        number: i32 => { default: -1 },
        gone: i16 => { versions: ..=1, ignorable },
    }

    /// A tree, to nest deeply.
    record Node versions 0..=0 flexible 32767 {
        children: Vec<Node>,
    }

    /// Much memory for few bytes.
    record Wide versions 0..=0 flexible 0 {
        rows: Vec<Row>,
    }

    /// One byte on the wire for each field.
    struct Row {
        a: Str,
        b: Str,
        c: Vec<i32>,
    }
}

fn everything() -> Everything {
    Everything {
        a_bool: true,
        an_i8: -2,
        an_i16: -300,
        a_u16: 65_000,
        an_i32: -70_000,
        a_u32: 4_000_000_000,
        an_i64: i64::MIN,
        an_f64: 0.5,
        a_uuid: Uuid::from_u128(77),
        a_str: "text".into(),
        a_nullable_str: Some("other".into()),
        some_bytes: Bytes::from_static(b"\xff\x00"),
        nullable_bytes: None,
        records: Some(Records::from(Bytes::from_static(b"records"))),
        numbers: vec![1, 2, 3],
        strings: Some(vec!["".into(), "b".into()]),
        part: Part {
            number: 4,
            ..Default::default()
        },
        maybe_part: Some(Part::default()),
        ..Default::default()
    }
}

fn encoded<M: Versioned>(value: &M, version: i16) -> Bytes {
    let mut w = Writer::new();
    value.encode_versioned(&mut w, version).unwrap();
    let length = w.len();
    let bytes: Bytes = w.finish().concat().into();
    assert_eq!(length, bytes.len());
    bytes
}

#[test]
fn every_type_survives_every_version() {
    for version in Everything::VERSIONS {
        let mut value = everything();
        if version >= 1 {
            value.a_nullable_str = None;
            value.late = 8;
            value.strings = None;
        }
        if version >= 2 {
            value.tagged = "tagged".into();
            value.maybe_part = None;
        }
        if version >= 3 {
            value.tagged_part = Some(Part::default());
        }
        let bytes = encoded(&value, version);
        let mut r = Reader::new(bytes.clone());
        assert_eq!(Everything::decode(&mut r, version), Ok(value));
        // Cut anywhere, it is an error and never a panic.
        for cut in 0..bytes.len() {
            let mut r = Reader::new(bytes.slice(..cut));
            Everything::decode(&mut r, version).unwrap_err();
        }
    }
}

#[test]
fn absent_fields_decode_as_their_defaults() {
    let bytes = encoded(&everything(), 0);
    let value = Everything::decode(&mut Reader::new(bytes), 0).unwrap();
    assert_eq!((value.late, value.tagged_part), (7, None));
    assert_eq!(Part::default().number, -1);
}

#[test]
fn what_a_version_cannot_express_is_an_error_unless_ignorable() {
    let mut w = Writer::new();
    let mut value = everything();
    value.late_and_ignorable = 9;
    value.encode(&mut w, 0).unwrap();

    value.late = 8;
    let error = value.encode(&mut w, 0).unwrap_err();
    let field = "Everything.late";
    assert_eq!(error, EncodeError::NotInVersion { field, version: 0 });

    let mut value = everything();
    value.tagged = "tagged".into();
    let error = value.encode(&mut w, 1).unwrap_err();
    let field = "Everything.tagged";
    assert_eq!(error, EncodeError::NotInVersion { field, version: 1 });

    let mut value = everything();
    value.a_nullable_str = None;
    let error = value.encode(&mut w, 0).unwrap_err();
    let field = "Everything.a_nullable_str";
    assert_eq!(error, EncodeError::NullNotAllowed { field, version: 0 });

    let error = value.encode(&mut w, 4).unwrap_err();
    let message = "Everything";
    assert_eq!(
        error,
        EncodeError::UnsupportedVersion {
            message,
            version: 4
        }
    );
}

#[test]
fn null_is_refused_where_it_is_not_allowed() {
    // The string of version 1 is null; read as version 0, which is the same but for that.
    let mut value = everything();
    value.a_nullable_str = None;
    let bytes = encoded(&value, 1);
    let error = Everything::decode(&mut Reader::new(bytes), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::UnexpectedNull { version: 0 });
    assert_eq!(error.field, Some("Everything.a_nullable_str"));
    assert!(
        error.to_string().contains("Everything.a_nullable_str"),
        "{error}"
    );
}

#[test]
fn strings_longer_than_their_length_can_say_are_refused() {
    let value = Row {
        a: "x".repeat(40_000).into(),
        ..Default::default()
    };
    let wide = Wide { rows: vec![value] };
    let error = wide.encode(&mut Writer::new(), 0).unwrap_err();
    assert!(
        matches!(
            error,
            EncodeError::TooLong {
                field: Some("Row.a"),
                length: 40_000,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_count_beyond_the_remaining_bytes_is_refused_before_anything_is_reserved() {
    for count in [5u32, 1000, u32::MAX] {
        let mut w = Writer::new();
        w.put_uvarint(count);
        w.put_slice(&[1; 12]);
        let error = Wide::decode(&mut Reader::new(w.finish().concat().into()), 0).unwrap_err();
        // A row takes at least four bytes: three lengths and the count of tags.
        assert_eq!(
            error.kind,
            DecodeErrorKind::CountTooLarge {
                count: count as usize - 1,
                size_min: 4,
                remaining: 12
            }
        );
    }
}

#[test]
fn lengths_below_minus_one_are_refused() {
    let mut w = Writer::new();
    w.put_i32(-2);
    let error = Node::decode(&mut Reader::new(w.finish().concat().into()), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::NegativeLength(-2));
}

#[test]
fn a_frame_that_would_take_too_much_memory_is_refused() {
    // Rows of 4 bytes take 88 bytes of memory: over the budget as soon as the base is used up.
    let fits = Wide {
        rows: vec![Row::default(); 800],
    };
    let bytes = encoded(&fits, 0);
    assert_eq!(Wide::decode(&mut Reader::new(bytes), 0), Ok(fits));

    let too_many = Wide {
        rows: vec![Row::default(); 30_000],
    };
    let bytes = encoded(&too_many, 0);
    let error = Wide::decode(&mut Reader::new(bytes), 0).unwrap_err();
    assert!(
        matches!(error.kind, DecodeErrorKind::OverBudget { .. }),
        "{error}"
    );
}

#[test]
fn deep_nesting_is_refused() {
    let mut node = Node::default();
    for _ in 1..DEPTH_MAX {
        node = Node {
            children: vec![node],
        };
    }
    let bytes = encoded(&node, 0);
    Node::decode(&mut Reader::new(bytes), 0).unwrap();
    let deeper = Node {
        children: vec![node],
    };
    let bytes = encoded(&deeper, 0);
    let error = Node::decode(&mut Reader::new(bytes), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::TooDeep { max: DEPTH_MAX });
}

#[test]
fn invalid_utf8_and_trailing_bytes_are_refused() {
    let wide = Wide {
        rows: vec![Row {
            a: "ab".into(),
            ..Default::default()
        }],
    };
    let mut bytes = encoded(&wide, 0).to_vec();
    let place = bytes.windows(2).position(|w| w == b"ab").unwrap();
    bytes.push(0);
    let error = Wide::decode(&mut Reader::new(bytes.clone().into()), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::Trailing(1));

    bytes.pop();
    bytes[place] = 0xff;
    let error = Wide::decode(&mut Reader::new(bytes.into()), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::InvalidUtf8);
    assert_eq!(error.position, place);
}

/// An `Everything` of version 3 without tagged fields, and then these bytes for them.
fn with_tags(tags: &[u8]) -> Bytes {
    let mut bytes = encoded(&everything(), 3).to_vec();
    assert_eq!(bytes.pop(), Some(0));
    bytes.extend_from_slice(tags);
    bytes.into()
}

#[test]
fn tagged_fields_that_hold_their_default_are_not_written() {
    let bytes = encoded(&everything(), 3);
    assert_eq!(bytes.last(), Some(&0));
    let mut set = everything();
    set.tagged = "x".into();
    let bytes = encoded(&set, 3);
    assert_eq!(&bytes[bytes.len() - 5..], &[1, 0, 2, 2, b'x']);
}

#[test]
fn unknown_tagged_fields_are_passed_over_within_bounds() {
    let bytes = with_tags(&[2, 3, 2, 0xaa, 0xbb, 9, 0]);
    let value = Everything::decode(&mut Reader::new(bytes), 3).unwrap();
    assert_eq!(value, everything());

    for cut_off in [
        &[1][..],
        &[1, 3],
        &[1, 3, 2, 0xaa],
        &[1, 3, 0xff, 0xff, 0xff, 0xff, 0x0f],
    ] {
        let error = Everything::decode(&mut Reader::new(with_tags(cut_off)), 3).unwrap_err();
        assert!(
            matches!(error.kind, DecodeErrorKind::Truncated { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_tagged_field_is_read_within_its_own_size() {
    // The string says five bytes, the tagged field two; more bytes follow.
    let bytes = with_tags(&[2, 0, 2, 6, b'x', 9, 3, 1, 2, 3]);
    let error = Everything::decode(&mut Reader::new(bytes), 3).unwrap_err();
    assert!(
        matches!(error.kind, DecodeErrorKind::Truncated { .. }),
        "{error}"
    );

    let bytes = with_tags(&[1, 0, 3, 2, b'x', 0]);
    let error = Everything::decode(&mut Reader::new(bytes), 3).unwrap_err();
    let (tag, claimed, used) = (0, 3, 2);
    assert_eq!(error.kind, DecodeErrorKind::TagSize { tag, claimed, used });
}

#[test]
fn a_tag_that_this_version_does_not_have_is_unknown() {
    let mut value = everything();
    value.tagged_part = Some(Part::default());
    let bytes = encoded(&value, 3);
    let got = Everything::decode(&mut Reader::new(bytes), 2).unwrap();
    assert_eq!(got.tagged_part, None);
}

#[test]
fn varints_of_more_than_32_bits_are_refused() {
    for bytes in [
        &[0xff, 0xff, 0xff, 0xff, 0x1f][..],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0],
    ] {
        let mut r = Reader::new(Bytes::copy_from_slice(bytes));
        assert_eq!(
            r.read_uvarint().unwrap_err().kind,
            DecodeErrorKind::VarintOverflow
        );
    }
    for value in [0, 1, 127, 128, 16_383, 16_384, u32::MAX] {
        let mut w = Writer::new();
        w.put_uvarint(value);
        let mut r = Reader::new(w.finish().concat().into());
        assert_eq!(r.read_uvarint(), Ok(value));
        r.finish().unwrap();
    }
}

#[test]
fn byte_fields_and_strings_share_the_frame() {
    let bytes = encoded(&everything(), 0);
    let range = bytes.as_ptr_range();
    let value = Everything::decode(&mut Reader::new(bytes), 0).unwrap();
    assert!(range.contains(&value.some_bytes.as_ptr()));
    assert!(range.contains(&value.a_str.as_ptr()));
    assert!(range.contains(&value.records.unwrap().slices()[0].as_ptr()));
    assert!(!range.contains(&value.a_str.detached().as_ptr()));
}

#[test]
fn records_inside_a_tagged_field_keep_their_place() {
    let mut w = Writer::new();
    w.put_i8(1);
    w.put_tag(3, |w| {
        w.put_i8(2);
        w.put_records(&Records::from(Bytes::from_static(b"abc")));
        w.put_i8(4);
        Ok(())
    })
    .unwrap();
    w.put_i8(5);
    let chunks = w.finish();
    assert_eq!(chunks.len(), 3);
    assert_eq!(chunks.concat(), [1, 3, 5, 2, b'a', b'b', b'c', 4, 5]);
}

#[test]
fn records_are_equal_when_their_bytes_are() {
    let whole = Records::from(Bytes::from_static(b"abcd"));
    let cut: Records = [&b"ab"[..], b"", b"cd"]
        .map(Bytes::from_static)
        .into_iter()
        .collect();
    assert_eq!(whole, cut);
    assert_eq!(cut.len(), 4);
    assert_eq!(cut.to_bytes(), Bytes::from_static(b"abcd"));
    assert_ne!(whole, Records::from(Bytes::from_static(b"abce")));
    assert!(Records::new().is_empty());
}
