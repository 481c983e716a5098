//! Answers the requests of `tests/matrix/remote.py` for a client in Rust.

use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Partitions of the topic.
pub const PARTITIONS: i32 = 4;
/// No request takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A record as the scenario has it.
#[derive(Serialize, Deserialize)]
pub struct Record {
    pub partition: i32,
    pub timestamp: i64,
    pub key: String,
    pub value: String,
    pub headers: Vec<(String, String)>,
    pub offset: i64,
}

/// Offsets by partition.
pub type Offsets = BTreeMap<i32, i64>;
pub type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The library has no function for it; the message says which.
#[derive(Debug)]
pub struct NotAvailable(pub &'static str);

impl std::fmt::Display for NotAvailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for NotAvailable {}

/// What the scenario asks of a library.
pub trait Client: Send + Sync + 'static {
    fn create(&self, partitions: i32) -> Answer<()>;
    fn produce(&self, codec: &str, records: Vec<Record>) -> Answer<()>;
    fn read(&self, starts: Offsets, count: usize) -> Answer<Vec<Record>>;
    /// Whether there is a member to be had.
    fn has_members(&self) -> Result<(), NotAvailable> {
        Ok(())
    }
    /// Consumes in the group until the progress is stopped.
    fn member(&self, progress: &Progress) -> Answer<()>;
    fn committed(&self) -> Answer<Offsets>;
    fn offsets_for_time(&self, at_ms: i64) -> Answer<Offsets>;
    fn earliest(&self, partition: i32) -> Answer<i64>;
    fn ends(&self) -> Answer<Offsets>;
    fn topics(&self) -> Answer<Vec<String>>;
    /// Leaders by partition.
    fn describe_topic(&self) -> Answer<BTreeMap<i32, i32>>;
    fn describe_configs(&self) -> Answer<BTreeMap<String, Option<String>>>;
    /// State, and number of members.
    fn describe_group(&self) -> Answer<(String, usize)>;
    fn groups(&self) -> Answer<Vec<String>>;
    fn delete_records(&self, partition: i32, before: i64) -> Answer<()>;
    fn delete_group(&self) -> Answer<()>;
    fn delete_topic(&self) -> Answer<()>;
}

/// What a member holds and what it has seen.
#[derive(Default)]
pub struct Progress {
    pub held: Mutex<Vec<i32>>,
    pub seen: Mutex<Vec<(i32, i64, String)>>,
    error: Mutex<Option<String>>,
    stopped: AtomicBool,
}

impl Progress {
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn take(&self) -> Value {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        json!({"held": *self.held.lock().unwrap(), "seen": seen, "error": *self.error.lock().unwrap()})
    }
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    Create {
        partitions: i32,
    },
    Produce {
        codec: String,
        records: Vec<Record>,
    },
    Read {
        /// By partition: serde reads no numbers from keys here.
        starts: BTreeMap<String, i64>,
        count: usize,
    },
    Member,
    MemberState {
        member: usize,
    },
    CloseMember {
        member: usize,
    },
    Committed,
    OffsetsForTime {
        at_ms: i64,
    },
    Earliest {
        partition: i32,
    },
    Ends,
    Topics,
    DescribeTopic,
    DescribeConfigs,
    DescribeGroup,
    Groups,
    DeleteRecords {
        partition: i32,
        before: i64,
    },
    DeleteGroup,
    DeleteTopic,
}

/// Answers requests until there are no more. The arguments are the broker's address, and a name for the topic and the
/// group.
pub fn serve<C: Client>(make: impl FnOnce(&str, &str) -> Answer<C>) {
    let arguments: Vec<String> = std::env::args().collect();
    let client = make(&arguments[1], &arguments[2]).expect("the client starts");
    let mut server = Server {
        client: Arc::new(client),
        members: Vec::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input can be read");
        let found = serde_json::from_str(&line)
            .map_err(Into::into)
            .and_then(|request| server.answer(request));
        let answer = match found {
            Ok(found) => json!({"ok": found}),
            Err(reason) if reason.is::<NotAvailable>() => json!({"na": reason.to_string()}),
            Err(error) => json!({"error": error.to_string()}),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}").expect("standard output can be written");
        out.flush().expect("standard output can be written");
    }
}

struct Server<C> {
    client: Arc<C>,
    members: Vec<(Arc<Progress>, Option<JoinHandle<()>>)>,
}

impl<C: Client> Server<C> {
    fn answer(&mut self, request: Request) -> Answer<Value> {
        let client = &self.client;
        Ok(match request {
            Request::Create { partitions } => json!(client.create(partitions)?),
            Request::Produce { codec, records } => json!(client.produce(&codec, records)?),
            Request::Read { starts, count } => {
                let mut offsets = Offsets::new();
                for (partition, offset) in starts {
                    offsets.insert(partition.parse()?, offset);
                }
                json!(client.read(offsets, count)?)
            }
            Request::Member => json!(self.join()?),
            Request::MemberState { member } => self.members[member].0.take(),
            Request::CloseMember { member } => self.end(member),
            Request::Committed => json!(client.committed()?),
            Request::OffsetsForTime { at_ms } => json!(client.offsets_for_time(at_ms)?),
            Request::Earliest { partition } => json!(client.earliest(partition)?),
            Request::Ends => json!(client.ends()?),
            Request::Topics => json!(client.topics()?),
            Request::DescribeTopic => json!(client.describe_topic()?),
            Request::DescribeConfigs => json!(client.describe_configs()?),
            Request::DescribeGroup => json!(client.describe_group()?),
            Request::Groups => json!(client.groups()?),
            Request::DeleteRecords { partition, before } => {
                json!(client.delete_records(partition, before)?)
            }
            Request::DeleteGroup => json!(client.delete_group()?),
            Request::DeleteTopic => json!(client.delete_topic()?),
        })
    }

    fn join(&mut self) -> Answer<usize> {
        self.client.has_members()?;
        let progress = Arc::new(Progress::default());
        let (client, theirs) = (Arc::clone(&self.client), Arc::clone(&progress));
        let thread = std::thread::spawn(move || {
            if let Err(error) = client.member(&theirs) {
                *theirs.error.lock().unwrap() = Some(error.to_string());
            }
        });
        self.members.push((progress, Some(thread)));
        Ok(self.members.len() - 1)
    }

    fn end(&mut self, member: usize) -> Value {
        let (progress, thread) = &mut self.members[member];
        progress.stopped.store(true, Ordering::Release);
        if thread.take().is_some_and(|thread| thread.join().is_err()) {
            *progress.error.lock().unwrap() = Some("a panic".into());
        }
        progress.take()
    }
}
