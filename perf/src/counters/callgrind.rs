//! Reads what valgrind's callgrind writes: whose instructions, and whose calls of the allocator.
//!
//! The profile names a function together with its callers (`--separate-callers`), so that what a library does is
//! counted for whoever asked for it: the broker, the simulator that stands in for the kernel, or the client.

use anyhow::{bail, ensure, Context, Result};
use std::collections::HashMap;
use std::io::BufRead;
use std::ops::{AddAssign, Sub};

/// Callers that are part of a function's name; behind these, what is nobody's is the broker's.
pub const CALLERS: usize = 10;

/// What one run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    pub instructions: Split,
    /// Calls that allocate or grow memory.
    pub allocations: Split,
}

/// A count by who caused it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    pub broker: i64,
    pub simulator: i64,
    /// Of the worker's client, and the start of the process.
    pub client: i64,
}

impl Split {
    fn of(&mut self, owner: Owner) -> &mut i64 {
        match owner {
            Owner::Broker => &mut self.broker,
            Owner::Simulator => &mut self.simulator,
            Owner::Client => &mut self.client,
        }
    }

    fn total(&self) -> i64 {
        self.broker + self.simulator + self.client
    }
}

impl Sub for Split {
    type Output = Split;

    fn sub(self, other: Split) -> Split {
        Split {
            broker: self.broker - other.broker,
            simulator: self.simulator - other.simulator,
            client: self.client - other.client,
        }
    }
}

impl AddAssign for Split {
    fn add_assign(&mut self, other: Split) {
        self.broker += other.broker;
        self.simulator += other.simulator;
        self.client += other.client;
    }
}

impl Sub for Profile {
    type Output = Profile;

    fn sub(self, other: Profile) -> Profile {
        Profile {
            instructions: self.instructions - other.instructions,
            allocations: self.allocations - other.allocations,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Broker,
    Simulator,
    Client,
}

impl Profile {
    /// Reads a file of the callgrind format with one event, `Ir`.
    ///
    /// # Errors
    /// The text is of another form, cut short, or its parts do not add up to its total.
    pub fn read(text: impl BufRead) -> Result<Profile> {
        let mut reader = Reader::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.context("a profile of callgrind can't be read")?;
            let taken = reader.line(line.trim_end());
            taken.with_context(|| format!("line {} of a profile of callgrind", index + 1))?;
        }
        let total = reader.total.context("a profile of callgrind has no end")?;
        let profile = reader.profile;
        let sum = profile.instructions.total();
        ensure!(
            sum == total,
            "the functions of a profile of callgrind add up to {sum} instructions, not to its total of {total}"
        );
        Ok(profile)
    }
}

#[derive(Default)]
struct Reader {
    files: Names,
    functions: Names,
    /// By the ids of file and function.
    owners: HashMap<(u64, u64), Owner>,
    file: u64,
    function: u64,
    called: u64,
    /// The next line is what a call took, which the called function's own lines count.
    after_call: bool,
    total: Option<i64>,
    profile: Profile,
}

/// Names are written once, then stand as `(id)`.
#[derive(Default)]
struct Names(HashMap<u64, String>);

impl Names {
    fn take(&mut self, text: &str) -> Result<u64> {
        let inner = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (id, name) = inner.with_context(|| format!("no (id) in {text:?}"))?;
        let id = id.parse().with_context(|| format!("no (id) in {text:?}"))?;
        match name.trim_start() {
            "" => ensure!(self.0.contains_key(&id), "({id}) has no name yet"),
            name => {
                self.0.insert(id, name.to_owned());
            }
        }
        Ok(id)
    }

    fn get(&self, id: u64) -> &str {
        self.0.get(&id).map_or("", String::as_str)
    }
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        match line.bytes().next() {
            None | Some(b'#') => return Ok(()),
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => return self.cost(line),
            Some(_) => {}
        }
        if let Some((key, value)) = line.split_once('=') {
            match key {
                "fl" | "fi" | "fe" => self.file = self.files.take(value)?,
                "fn" => self.function = self.functions.take(value)?,
                "cfi" | "cfl" => {
                    self.files.take(value)?;
                }
                "cfn" => self.called = self.functions.take(value)?,
                "calls" => self.call(value)?,
                // Objects, and jumps within a function, tell nothing here.
                "ob" | "cob" | "jump" | "jcnd" => {}
                _ => bail!("{key}= is not known"),
            }
            return Ok(());
        }
        let (key, value) = line.split_once(':').context("neither key nor cost")?;
        let value = value.trim();
        match key {
            "events" => ensure!(value == "Ir", "events {value:?}: only Ir is expected"),
            "positions" => ensure!(
                value == "line",
                "positions {value:?}: only line is expected"
            ),
            "totals" => self.total = Some(value.parse().context("no total")?),
            _ => {}
        }
        Ok(())
    }

    fn cost(&mut self, line: &str) -> Result<()> {
        if std::mem::take(&mut self.after_call) {
            return Ok(());
        }
        let (_, cost) = line.split_once(' ').unwrap_or((line, "0"));
        let cost: i64 = cost.trim().parse().context("no cost")?;
        let owner = self.owner();
        *self.profile.instructions.of(owner) += cost;
        Ok(())
    }

    fn call(&mut self, value: &str) -> Result<()> {
        self.after_call = true;
        let count = value.split(' ').next().unwrap_or_default();
        let count: i64 = count.parse().context("no number of calls")?;
        let called = base(self.functions.get(self.called));
        if allocates(called) && !is_allocator(base(self.functions.get(self.function))) {
            let owner = self.owner();
            *self.profile.allocations.of(owner) += count;
        }
        Ok(())
    }

    fn owner(&mut self) -> Owner {
        let (file, function) = (self.file, self.function);
        let (files, functions) = (&self.files, &self.functions);
        let known = self.owners.entry((file, function));
        *known.or_insert_with(|| owner(files.get(file), functions.get(function)))
    }
}

/// Whose work a line is: that of the file it was inlined from, else of the first function up the callers' chain that
/// is ours. Behind the chain's end it is the broker's.
fn owner(file: &str, chain: &str) -> Owner {
    of_file(file)
        .or_else(|| chain.split('\'').find_map(of_function))
        .unwrap_or(Owner::Broker)
}

fn of_file(file: &str) -> Option<Owner> {
    let root = env!("CARGO_MANIFEST_DIR").strip_suffix("perf")?;
    let inside = file.strip_prefix(root)?;
    if inside.starts_with("src/runtime/sim/") {
        Some(Owner::Simulator)
    } else if inside.starts_with("src/") || inside.starts_with(PARTITION_FILE) {
        Some(Owner::Broker)
    } else if inside.starts_with("perf/src/") {
        Some(Owner::Client)
    } else {
        None
    }
}

/// By the crate that its name has first: what follows are the types that it works on.
fn of_function(name: &str) -> Option<Owner> {
    let (at, _) = name.match_indices("::").find_map(|(at, _)| {
        let start = name[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_');
        let start = start.map_or(0, |start| start + 1);
        let path_begins = !name[..start].ends_with("::");
        let ours = path_begins && ["highwater", "perf"].contains(&&name[start..at]);
        ours.then_some((start, ()))
    })?;
    let path = &name[at..];
    if path.starts_with("highwater::runtime::sim::") {
        Some(Owner::Simulator)
    } else if path.starts_with("highwater::") || path.starts_with(PARTITION_PATH) {
        Some(Owner::Broker)
    } else {
        Some(Owner::Client)
    }
}

/// A name without its callers.
fn base(name: &str) -> &str {
    name.split('\'').next().unwrap_or(name)
}

/// What asks for memory: of mimalloc, and of the C library for the codecs that are C.
fn allocates(name: &str) -> bool {
    const MIMALLOC: [&str; 4] = ["mi_malloc", "mi_zalloc", "mi_calloc", "mi_realloc"];
    const C: [&str; 6] = [
        "malloc",
        "calloc",
        "realloc",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
    ];
    C.contains(&name) || MIMALLOC.iter().any(|entry| name.starts_with(entry))
}

/// Calls among these are how an allocation is made, not another.
fn is_allocator(name: &str) -> bool {
    name.starts_with("mi_") || name.starts_with("_mi_") || allocates(name)
}

/// The partition's bed does what a connection does: its work is the broker's.
const PARTITION_FILE: &str = "perf/src/counters/worker/partition.rs";
const PARTITION_PATH: &str = "perf::counters::worker::partition::";

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile as callgrind 3.19 writes it, small.
    fn fixture() -> String {
        let root = env!("CARGO_MANIFEST_DIR").strip_suffix("perf").unwrap();
        format!(
            "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 3512\ncmd:  perf counters worker\npart: 1\n\n\n\
             desc: I1 cache: \ndesc: Trigger: Program termination\n\npositions: line\nevents: Ir\nsummary: 197\n\n\n\
             ob=(5) /target/perf\nfl=(1) {root}src/shard/produce.rs\nfn=(10) highwater::shard::produce::start'main\n\
             10 5\n+2 7\nfi=(2) {root}src/runtime/sim/net.rs\n200 11\nfe=(1)\n* 1\n\
             cob=(5)\ncfi=(3) ???\ncfn=(20) mi_malloc_aligned'highwater::shard::produce::start'main\ncalls=4 0 \n13 100\n14 2\n\n\
             fl=(3)\nfn=(20)\n0 60\ncfn=(21) mi_theap_malloc'mi_malloc_aligned\ncalls=4 0\n0 40\n\
             fn=(21)\n0 40\n\n\
             fn=(30) memcpy'alloc::vec::Vec<T>::extend'<highwater::runtime::sim::net::SimConnWriter as x::Y>::write'main\n0 50\n\
             cfn=(31) malloc'x\ncalls=3 +1\n+1 9\n\
             fl=(4) {root}perf/src/counters/worker/broker.rs\nfn=(40) core::ops::function::FnOnce::call_once\n5 13\n-4 8\n\n\
             totals: 197\n"
        )
    }

    #[test]
    fn given_a_profile_then_instructions_and_allocations_are_split_by_who_caused_them() {
        let profile = Profile::read(fixture().as_bytes()).unwrap();
        assert_eq!(
            profile.instructions,
            Split {
                // Its own, mimalloc's for it, and mimalloc's inside whose callers are not named any further.
                broker: 5 + 7 + 1 + 2 + 60 + 40,
                simulator: 11 + 50,
                client: 13 + 8,
            }
        );
        let allocations = Split {
            broker: 4,
            simulator: 3,
            client: 0,
        };
        assert_eq!(profile.allocations, allocations);
    }

    #[test]
    fn given_two_profiles_then_their_difference_is_by_part() {
        let one = Profile::read(fixture().as_bytes()).unwrap();
        let mut two = one;
        two.instructions += Split {
            broker: 100,
            simulator: 10,
            client: 1,
        };
        let difference = two - one;
        assert_eq!(difference.instructions.broker, 100);
        assert_eq!(difference.instructions.simulator, 10);
        assert_eq!(difference.instructions.client, 1);
        assert_eq!(difference.allocations, Split::default());
    }

    #[test]
    fn given_a_damaged_profile_then_it_is_refused() {
        let refused = |text: String| format!("{:#}", Profile::read(text.as_bytes()).unwrap_err());
        let whole = fixture();
        let cut = whole.replace("totals: 197\n", "");
        assert!(refused(cut).contains("has no end"));
        assert!(refused(whole.replace("* 1\n", "* 2\n")).contains("add up to 198"));
        assert!(refused(whole.replace("events: Ir", "events: Ir Dr")).contains("only Ir"));
        assert!(refused(whole.replace("fl=(3)", "fl=(77)")).contains("(77) has no name"));
        assert!(refused(whole.replace("calls=4 0\n", "calls=x 0\n")).contains("number of calls"));
        assert!(refused("hello\n".to_owned()).contains("line 1"));
        assert!(refused(String::new()).contains("has no end"));
    }

    #[test]
    fn given_a_function_then_its_first_crate_says_whose_it_is() {
        let owned = |name| of_function(name);
        assert_eq!(owned("highwater::shard::Shard::start"), Some(Owner::Broker));
        assert_eq!(
            owned("<highwater::runtime::sim::file::SimFile>::write_at"),
            Some(Owner::Simulator)
        );
        assert_eq!(
            owned("highwater::runtime::sim::executor::Core::block_on::<perf::counters::worker::X>"),
            Some(Owner::Simulator)
        );
        assert_eq!(
            owned("core::ptr::drop_in_place<highwater::server::X<highwater::runtime::sim::Y>>"),
            Some(Owner::Broker)
        );
        assert_eq!(owned("perf::counters::worker::drive"), Some(Owner::Client));
        assert_eq!(
            owned("<perf::counters::worker::partition::PartitionBed as X>::fetch"),
            Some(Owner::Broker)
        );
        assert_eq!(owned("other::highwater::f"), None);
        assert_eq!(owned("superhighwater::f"), None);
        assert_eq!(owned("__memcpy_avx_unaligned_erms"), None);
    }
}
