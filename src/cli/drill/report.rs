//! What a drill found, for people and for scripts. Its verdict claims no more than the fault that was really made.

use std::path::PathBuf;

use serde_json::{json, Value};

use super::CutBlocks;

/// One cut.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    pub number: u32,
    /// How long the load had run.
    pub load_ms: u64,
    /// So far, over all rounds.
    pub sent: u64,
    pub acknowledged: u64,
    /// Acknowledged records that had to be there, and were compared.
    pub compared: u64,
    /// Records that a consumer has seen and that are still looked for.
    pub seen: u64,
    /// Acknowledged without a promise of a flush, and lost.
    pub unflushed_lost: u64,
    /// Whether the cut took a file that was written and not flushed; none without a block cut.
    pub canary_lost: Option<bool>,
    /// What the cut did to the blocks that the device was given and had not flushed; none without a block cut.
    pub blocks: Option<CutBlocks>,
    /// What is wrong: the first ones.
    pub losses: Vec<String>,
    /// How many things are.
    pub loss_count: u64,
}

impl Round {
    pub fn loss(&mut self, what: String) {
        self.loss_count += 1;
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(what);
        }
    }

    /// Whether the cut took something that only a flush would have kept.
    fn is_real(&self) -> bool {
        self.canary_lost == Some(true) || self.canary_lost.is_some() && self.unflushed_lost > 0
    }

    /// A line of progress.
    pub fn line(&self) -> String {
        let mut line = format!(
            "round {}: cut after {} ms; {} records sent, {} acknowledged, {} compared, {} seen by the consumer",
            self.number, self.load_ms, self.sent, self.acknowledged, self.compared, self.seen
        );
        if let Some(lost) = self.canary_lost {
            let canary = if lost { "taken" } else { "left" };
            line += &format!(
                "; the cut took {} records that were not flushed, and the canary was {canary}",
                self.unflushed_lost
            );
        }
        if let Some(blocks) = self.blocks {
            let all = blocks.kept_bytes + blocks.lost_bytes;
            line += &format!(
                "; the disk kept {} of {} KiB that were not flushed",
                blocks.kept_bytes >> 10,
                all >> 10
            );
        }
        match self.loss_count {
            0 => line + "; nothing lost",
            n => line + &format!("; {n} LOSSES"),
        }
    }

    fn json(&self) -> Value {
        json!({
            "round": self.number,
            "load_ms": self.load_ms,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "compared": self.compared,
            "seen": self.seen,
            "unflushed_lost": self.unflushed_lost,
            "canary_lost": self.canary_lost,
            "unflushed_bytes_kept": self.blocks.map(|blocks| blocks.kept_bytes),
            "unflushed_bytes_lost": self.blocks.map(|blocks| blocks.lost_bytes),
            "losses": self.loss_count,
            "first_losses": self.losses,
        })
    }
}

/// A whole drill.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub seed: u64,
    pub is_block_cut: bool,
    /// Why it was a SIGKILL only.
    pub why_kill: String,
    pub rounds: Vec<Round>,
    /// Topics that the broker refused.
    pub left_out: Vec<String>,
    /// Where everything is kept.
    pub kept_at: Option<PathBuf>,
}

impl Report {
    pub fn is_lost(&self) -> bool {
        self.rounds.iter().any(|round| round.loss_count > 0)
    }

    /// Bytes of blocks that were not flushed, and of these those that the cuts took.
    fn unflushed_bytes(&self) -> (u64, u64) {
        let blocks = self.rounds.iter().filter_map(|round| round.blocks);
        blocks.fold((0, 0), |(all, lost), blocks| {
            let both = blocks.kept_bytes + blocks.lost_bytes;
            (all + both, lost + blocks.lost_bytes)
        })
    }

    fn real_cuts(&self) -> usize {
        self.rounds.iter().filter(|round| round.is_real()).count()
    }

    /// One word for scripts.
    fn verdict(&self) -> &'static str {
        match (self.is_lost(), self.is_block_cut, self.real_cuts()) {
            (true, ..) => "lost",
            (false, true, 1..) => "flush_proven",
            _ => "flush_not_proven",
        }
    }

    /// What it shows and what not.
    fn sentence(&self) -> String {
        let cuts = self.rounds.len();
        let compared = self.rounds.last().map_or(0, |round| round.compared);
        if self.is_lost() {
            let losses: u64 = self.rounds.iter().map(|round| round.loss_count).sum();
            let fault = match self.is_block_cut {
                true => "a power cut below the file system",
                false => "a SIGKILL",
            };
            return format!("LOST: {losses} losses after {fault}, in round {cuts}");
        }
        let kept = format!(
            "kept: all {compared} acknowledged records that had to be there are, after {cuts}"
        );
        let taken: u64 = self.rounds.iter().map(|round| round.unflushed_lost).sum();
        let canaries = self
            .rounds
            .iter()
            .filter(|round| round.canary_lost == Some(true));
        let canaries = canaries.count();
        let (all_kib, lost_kib) = self.unflushed_bytes();
        let (all_kib, lost_kib) = (all_kib >> 10, lost_kib >> 10);
        match (self.is_block_cut, self.real_cuts()) {
            (false, _) => format!(
                "{kept} x SIGKILL; flush not proven: the page cache survived; run as root with nbdkit installed for a cut below the file system"
            ),
            (true, 0) => format!(
                "{kept} cuts below the file system; flush not proven: the cuts took nothing, not even what was not flushed, and so prove nothing"
            ),
            (true, real) => format!(
                "{kept} cuts below the file system; flush proven: {real} of {cuts} cuts took what was not flushed ({canaries} canaries, {taken} records of a topic without flushes, {lost_kib} of {all_kib} KiB of unflushed blocks, the others survived); not proven: that the disk below keeps what it flushes"
            ),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("verdict  {}\n", self.sentence());
        for left_out in &self.left_out {
            text += &format!("left out {left_out}\n");
        }
        for round in &self.rounds {
            for loss in &round.losses {
                text += &format!("loss     round {}: {loss}\n", round.number);
            }
            if round.loss_count > round.losses.len() as u64 {
                let more = round.loss_count - round.losses.len() as u64;
                text += &format!("loss     round {}: and {more} more\n", round.number);
            }
        }
        text += &format!("seed     {}\n", self.seed);
        if let Some(path) = &self.kept_at {
            text += &format!(
                "kept at  {} (the ledger in ledger.log, the broker's words in broker.log, its data in data/)\n",
                path.display()
            );
        }
        text
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        json!({
            "verdict": self.verdict(),
            "sentence": self.sentence(),
            "fault": if self.is_block_cut { "block" } else { "kill" },
            "why_not_block": Some(&self.why_kill).filter(|why| !why.is_empty()),
            "cuts": self.rounds.len(),
            "real_cuts": self.real_cuts(),
            "seed": self.seed,
            "rounds": self.rounds.iter().map(Round::json).collect::<Vec<_>>(),
            "left_out": self.left_out,
            "kept_at": self.kept_at.as_ref().map(|path| path.display().to_string()),
        })
    }
}

/// Losses of a round that are listed.
const LOSSES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn report(is_block_cut: bool, rounds: Vec<Round>) -> Report {
        Report {
            is_block_cut,
            rounds,
            ..Default::default()
        }
    }

    #[test]
    fn the_verdict_claims_no_more_than_the_fault_shows() {
        let fine = Round::default();
        let killed = report(false, vec![fine.clone()]);
        assert_eq!(killed.verdict(), "flush_not_proven");
        assert!(killed
            .text()
            .contains("flush not proven: the page cache survived"));

        let idle = Round {
            canary_lost: Some(false),
            ..fine.clone()
        };
        let took_nothing = report(true, vec![idle.clone()]);
        assert_eq!(took_nothing.verdict(), "flush_not_proven");
        assert!(took_nothing.text().contains("prove nothing"));

        let real = Round {
            canary_lost: Some(true),
            ..fine.clone()
        };
        let proven = report(true, vec![idle.clone(), real]);
        assert_eq!(
            (proven.verdict(), proven.is_lost()),
            ("flush_proven", false)
        );
        assert!(proven
            .text()
            .contains("1 of 2 cuts took what was not flushed"));
        let half = Round {
            canary_lost: Some(true),
            blocks: Some(CutBlocks {
                kept_bytes: 4096,
                lost_bytes: 8192,
            }),
            ..fine.clone()
        };
        let partly = report(true, vec![half.clone(), half]);
        assert!(partly
            .text()
            .contains("16 of 24 KiB of unflushed blocks, the others survived"));
        assert_eq!(partly.json()["rounds"][1]["unflushed_bytes_kept"], 4096);
        let by_records = Round {
            unflushed_lost: 3,
            ..idle
        };
        assert_eq!(report(true, vec![by_records]).verdict(), "flush_proven");
        // After a SIGKILL such a loss would not be the cut's.
        let odd = Round {
            unflushed_lost: 3,
            ..fine
        };
        assert_eq!(report(false, vec![odd]).verdict(), "flush_not_proven");
    }

    #[test]
    fn losses_are_listed_up_to_a_number_and_counted() {
        let mut round = Round {
            number: 2,
            ..Default::default()
        };
        (0..50).for_each(|n| round.loss(format!("thing {n}")));
        let lost = report(true, vec![round]);
        assert_eq!(lost.verdict(), "lost");
        let text = lost.text();
        assert!(text.starts_with("verdict  LOST: 50 losses"), "{text}");
        assert!(text.contains("round 2: thing 19\n") && !text.contains("thing 20"));
        assert!(text.contains("and 30 more"));
        assert_eq!(lost.json()["rounds"][0]["losses"], 50);
    }
}
