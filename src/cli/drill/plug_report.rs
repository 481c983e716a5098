//! What a drill of a machine whose plug the user pulls says: at the end of its load, and after the comparison. It claims
//! no more than the records show, as nobody here saw what happened to the machine.

use serde_json::{json, Value};

use super::report::Round;

/// How a load ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// The connection broke, or nobody answers any more.
    Lost(String),
    /// By Ctrl-C.
    Interrupted,
    /// It has sent all that it sends.
    Complete,
    /// The broker does not do what it is asked for.
    Refused(String),
}

impl Ended {
    /// One word for scripts.
    pub fn word(&self) -> &'static str {
        match self {
            Ended::Lost(_) => "lost",
            Ended::Interrupted => "interrupted",
            Ended::Complete => "complete",
            Ended::Refused(_) => "refused",
        }
    }

    pub fn sentence(&self) -> String {
        match self {
            Ended::Lost(why) => format!("the connection was lost: {why}"),
            Ended::Interrupted => {
                "interrupted: as far as is known here, nothing was cut".to_owned()
            }
            Ended::Complete => {
                "all that a drill sends was sent, and nothing was cut as far as is known here"
                    .to_owned()
            }
            Ended::Refused(why) => format!("the broker refused: {why}"),
        }
    }
}

/// A load that has ended.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub ended: Ended,
    pub load_s: u64,
    pub broker: String,
    /// As the user named it.
    pub ledger: String,
    pub topics: Vec<String>,
    pub sent: u64,
    pub acknowledged: u64,
    pub unflushed: u64,
    pub left_out: Vec<String>,
}

impl Loaded {
    fn next(&self) -> String {
        format!(
            "highwater drill --broker {} --ledger {} --check",
            self.broker, self.ledger
        )
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "ended    after {} s: {}\nledger   {}: {} records sent, {} acknowledged, {} of these without a flush; keep it\n",
            self.load_s,
            self.ended.sentence(),
            self.ledger,
            self.sent,
            self.acknowledged,
            self.unflushed
        );
        for left_out in &self.left_out {
            text += &format!("left out {left_out}\n");
        }
        text + &format!(
            "next     when the machine and its broker are up again: {}\n",
            self.next()
        )
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        json!({
            "ended": self.ended.word(),
            "sentence": self.ended.sentence(),
            "load_s": self.load_s,
            "broker": self.broker,
            "ledger": self.ledger,
            "topics": self.topics,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "unflushed_acknowledged": self.unflushed,
            "left_out": self.left_out,
            "next": self.next(),
        })
    }
}

/// A comparison.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    pub found: Round,
    /// Acknowledged without a promise of a flush, by the ledger.
    pub unflushed: u64,
    pub torn_bytes: u64,
    /// How the load ended; none if the ledger does not say.
    pub load_end: Option<String>,
    pub cluster: String,
    pub topics: Vec<String>,
    pub seed: u64,
}

impl Checked {
    pub fn is_lost(&self) -> bool {
        self.found.loss_count > 0
    }

    /// One word for scripts.
    fn verdict(&self) -> &'static str {
        match (self.found.loss_count, self.found.unflushed_lost) {
            (1.., _) => "lost",
            (0, 1..) => "flush_proven",
            (0, 0) => "flush_not_proven",
        }
    }

    /// What it shows and what not.
    fn sentence(&self) -> String {
        let (gone, all) = (self.found.unflushed_lost, self.unflushed);
        if self.is_lost() {
            return format!(
                "LOST: {} losses, and {gone} of {all} records acknowledged without a flush are gone, too; {UNKNOWN}",
                self.found.loss_count
            );
        }
        let kept = format!(
            "kept: all {} acknowledged records that had to be there are",
            self.found.compared
        );
        match (gone, all) {
            (1.., _) => format!(
                "{kept}; flush proven: {gone} of {all} records acknowledged without a flush are gone, so the machine has lost what was not flushed; {UNKNOWN}: if its plug was pulled, its disk keeps what it flushes, and after a reset or a kernel's crash that is not proven"
            ),
            (0, 0) => format!(
                "{kept}; flush not proven: no record was acknowledged without a flush, so nothing shows whether the machine lost anything; {UNKNOWN}"
            ),
            (0, _) => format!(
                "{kept}; flush not proven: all {all} records acknowledged without a flush are there, too, as after a kill of the broker, or no cut; {UNKNOWN}"
            ),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("verdict  {}\n", self.sentence());
        for loss in &self.found.losses {
            text += &format!("loss     {loss}\n");
        }
        let more = self.found.loss_count - self.found.losses.len() as u64;
        if more > 0 {
            text += &format!("loss     and {more} more\n");
        }
        let end = self.load_end.as_deref();
        text += &format!(
            "load     {}\n",
            end.unwrap_or("the ledger does not say how it ended: its drill was cut off as well")
        );
        if self.torn_bytes > 0 {
            text += &format!(
                "ledger   its last {} bytes are no whole line and were left out: its own machine was cut off\n",
                self.torn_bytes
            );
        }
        text += &format!("seed     {}\n", self.seed);
        if !self.is_lost() {
            text += &format!(
                "next     delete what it left: highwater topic delete {}\n",
                self.topics.join(" ")
            );
        }
        text
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        json!({
            "verdict": self.verdict(),
            "sentence": self.sentence(),
            "fault": "unknown",
            "cluster": self.cluster,
            "compared": self.found.compared,
            "unflushed_acknowledged": self.unflushed,
            "unflushed_lost": self.found.unflushed_lost,
            "losses": self.found.loss_count,
            "first_losses": self.found.losses,
            "load_end": self.load_end,
            "torn_bytes": self.torn_bytes,
            "topics": self.topics,
            "seed": self.seed,
        })
    }
}

const UNKNOWN: &str = "what happened in between is not known here";

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(unflushed: u64, unflushed_lost: u64) -> Checked {
        Checked {
            found: Round {
                compared: 10,
                unflushed_lost,
                ..Default::default()
            },
            unflushed,
            torn_bytes: 0,
            load_end: Some("lost it closed the connection".to_owned()),
            cluster: "abc".to_owned(),
            topics: vec!["a".to_owned(), "b".to_owned()],
            seed: 7,
        }
    }

    #[test]
    fn a_flush_is_proven_only_where_something_unflushed_is_gone() {
        let proven = checked(5, 2);
        assert_eq!(proven.verdict(), "flush_proven");
        assert!(proven
            .text()
            .contains("flush proven: 2 of 5 records acknowledged without a flush are gone"));
        let killed = checked(5, 0);
        assert_eq!(killed.verdict(), "flush_not_proven");
        assert!(killed.text().contains("flush not proven: all 5 records"));
        let without = checked(0, 0);
        assert_eq!(without.verdict(), "flush_not_proven");
        assert!(without.text().contains("flush not proven: no record was"));
        for fine in [&proven, &killed, &without] {
            assert!(!fine.is_lost());
            assert!(fine.text().starts_with("verdict  kept: all 10 "));
            assert!(fine.text().contains(UNKNOWN));
            assert!(fine.text().ends_with("highwater topic delete a b\n"));
        }
    }

    #[test]
    fn losses_and_a_torn_ledger_are_told() {
        let mut lost = checked(5, 2);
        (0..50).for_each(|n| lost.found.loss(format!("thing {n}")));
        lost.torn_bytes = 9;
        lost.load_end = None;
        assert!(lost.is_lost());
        assert_eq!(lost.json()["verdict"], "lost");
        let text = lost.text();
        assert!(text.starts_with("verdict  LOST: 50 losses"), "{text}");
        for part in [
            "loss     thing 19\nloss     and 30 more\n",
            "load     the ledger does not say how it ended",
            "its last 9 bytes are no whole line",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("topic delete"), "{text}");
    }
}
