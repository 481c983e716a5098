//! What the handlers of the group APIs share: who asks, and how a coordinator is asked.

use super::respond::{Answer, Asked, BadRequest};
use crate::coordinator::{Caller, GroupCall, GroupRequest, GroupResponse};
use crate::protocol::{ErrorCode, Message, Str};
use crate::runtime::local::{join_bounded, Permit};
use crate::shard::{Memory, Shard, SMALL_FRAME_BYTES};
use std::net::{IpAddr, SocketAddr};

/// A request about groups, but for its body.
#[derive(Clone)]
pub(super) struct Asker {
    pub shard: Shard,
    pub asked: Asked,
    caller: Caller,
}

impl Asker {
    pub fn new(shard: Shard, asked: Asked, client_id: Option<Str>, peer: SocketAddr) -> Asker {
        let caller = Caller {
            // What waits keeps no frame.
            client_id: client_id.map(|id| id.detached()).unwrap_or_default(),
            client_host: host_text(peer.ip()),
        };
        Asker {
            shard,
            asked,
            caller,
        }
    }

    /// The version of the request.
    pub fn version(&self) -> i16 {
        self.asked.api_version
    }

    /// Asks the group's coordinator.
    pub async fn ask(&self, body: GroupRequest) -> GroupResponse {
        let rt = self.shard.rt();
        let random = u128::from(rt.random_u64()) << 64 | u128::from(rt.random_u64());
        let call = GroupCall {
            api_version: self.asked.api_version,
            caller: self.caller.clone(),
            fresh: uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid(),
            body,
        };
        self.shard.group(call).await
    }

    /// Asks about many groups, a few at a time, and gives the answers in their order.
    /// `take` says what an answer takes, and gives it; `refuse` makes the answer about a
    /// group for which there is no room any more.
    pub async fn ask_each<T>(
        &self,
        groups: impl Iterator<Item = (Str, GroupRequest)>,
        take: impl Fn(GroupResponse) -> Option<(usize, T)>,
        refuse: impl Fn(Str, ErrorCode) -> T,
    ) -> Result<Vec<T>, BadRequest> {
        let mut room = Room::new(self.shard.memory());
        let mut answers = Vec::new();
        let mut groups = groups.fuse();
        while room.is_left {
            let (ids, asks): (Vec<Str>, Vec<_>) = groups
                .by_ref()
                .take(LONG_ANSWERS_AT_ONCE)
                .map(|(id, request)| (id, self.ask(request)))
                .unzip();
            if ids.is_empty() {
                break;
            }
            for (id, answer) in ids
                .into_iter()
                .zip(join_bounded(LONG_ANSWERS_AT_ONCE, asks).await)
            {
                let (bytes, answer) = take(answer).ok_or(BadRequest::OfAnotherKind)?;
                answers.push(match room.take(bytes) {
                    true => answer,
                    false => refuse(id, NO_ROOM),
                });
            }
            self.shard.rt().yield_if_needed().await;
        }
        answers.extend(groups.map(|(id, _)| refuse(id, NO_ROOM)));
        Ok(answers)
    }

    pub fn answer<M: Message>(&self, response: &M) -> Result<Answer, BadRequest> {
        Ok(self.asked.answer(response)?)
    }
}

/// What an address looks like in Java, which writes no group of an IPv6 address short.
fn host_text(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => format!("/{ip}"),
        IpAddr::V6(ip) => {
            let groups = ip.segments().map(|group| format!("{group:x}"));
            format!("/{}", groups.join(":"))
        }
    }
}

/// The memory of an answer that can be much longer than its request, as one that names a
/// group many times: charged as it grows, so that it ends where there is no more.
struct Room<'a> {
    memory: &'a Memory,
    bytes: usize,
    charged: usize,
    charges: Vec<Permit>,
    /// Nothing was refused yet.
    is_left: bool,
}

impl<'a> Room<'a> {
    fn new(memory: &'a Memory) -> Room<'a> {
        Room {
            memory,
            bytes: 0,
            charged: SMALL_FRAME_BYTES,
            charges: Vec::new(),
            is_left: true,
        }
    }

    /// Takes room for another `bytes`; false if there is none.
    fn take(&mut self, bytes: usize) -> bool {
        let total = self.bytes.saturating_add(bytes);
        let more = total
            .saturating_sub(self.charged)
            .next_multiple_of(CHARGE_BYTES);
        self.is_left = total <= ANSWER_BYTES_MAX
            && (more == 0
                || self
                    .memory
                    .try_decoded(more)
                    .map(|charge| self.charges.push(charge))
                    .is_some());
        if self.is_left {
            self.charged += more;
            self.bytes = total;
        }
        self.is_left
    }
}

/// The longest answer about several groups, bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What is charged at once, bytes.
const CHARGE_BYTES: usize = 256 * 1024;
/// What a group is answered that has no room: less at once is to be asked for.
const NO_ROOM: ErrorCode = ErrorCode::InvalidRequest;
/// Groups that one request asks for long answers at the same time.
const LONG_ANSWERS_AT_ONCE: usize = 8;
/// Groups that one request asks for short answers at the same time.
pub(super) const GROUPS_AT_ONCE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_look_as_in_java() {
        for (ip, text) in [
            ("127.0.0.1", "/127.0.0.1"),
            ("::ffff:10.0.0.7", "/10.0.0.7"),
            ("::1", "/0:0:0:0:0:0:0:1"),
            ("fe80::abc:0:1", "/fe80:0:0:0:0:abc:0:1"),
        ] {
            assert_eq!(host_text(ip.parse().unwrap()), text);
        }
    }

    #[test]
    fn an_answer_ends_where_its_memory_does() {
        let memory = Memory::new(4 << 20, 1 << 20, 1 << 20);
        let mut room = Room::new(&memory);
        assert!(room.take(SMALL_FRAME_BYTES) && room.charges.is_empty());
        assert!(room.take(3 << 20), "the budget has it");
        assert!(!room.take(2 << 20), "no more");
        let mut other = Room::new(&memory);
        assert!(other.take(SMALL_FRAME_BYTES), "a short one needs none");
        assert!(!other.take(2 << 20));
        drop(room);
        assert!(other.take(2 << 20), "it is given back");
        let memory = Memory::new(1 << 40, 1 << 20, 1 << 20);
        let mut room = Room::new(&memory);
        assert!(room.take(ANSWER_BYTES_MAX) && !room.take(1));
    }
}
