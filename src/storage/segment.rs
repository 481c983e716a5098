//! A segment.
pub(super) struct Segment;
impl Segment {
    pub(super) fn len(&self) -> u64 {
        todo!()
    }
}
pub(super) struct OpenSegments;
impl OpenSegments {
    pub(super) fn new(max: usize) -> OpenSegments {
        OpenSegments
    }
}
