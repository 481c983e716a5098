//! `/debug/stalls`: the latest stalls as JSON, the newest first.

use super::Admin;
use crate::metadata::Image;
use crate::observe::Stall;
use crate::protocol::ApiKey;
use std::fmt::Write;
use uuid::Uuid;

impl Admin {
    pub(super) async fn stalls(&self) -> String {
        let inner = &*self.0;
        let stalls = inner.stalls.clone();
        // It may have to wait for the thread that records them.
        let latest = inner.rt.spawn_blocking(move || stalls.latest()).await;
        let latest = latest.unwrap_or_default();
        let image = inner.control.image();
        json(&latest, inner.config.stall_threshold_ms, &image)
    }
}

fn json(stalls: &[Stall], threshold_ms: u32, image: &Image) -> String {
    let mut out = format!("{{\"threshold_ms\":{threshold_ms},\"stalls\":[");
    for (place, stall) in stalls.iter().rev().enumerate() {
        let work = &stall.work;
        let api = work.api_key.map(|key| match ApiKey::declared(key) {
            Some(api) => api.name().to_owned(),
            None => key.to_string(),
        });
        let partition = work.partition.map(|(topic, index)| {
            let id = Uuid::from_u128(topic);
            match image.topic_by_id(&id) {
                Some(topic) => format!("{}-{index}", topic.name),
                None => format!("{id}-{index}"),
            }
        });
        let ran_ms = stall.ran.map(|ran| ran.as_millis().to_string());
        let _ = write!(
            out,
            "{}{{\"number\":{},\"executor\":{},\"began_ms\":{},\"lasted_ms\":{},\"ran_ms\":{},\"ended\":{},\"task\":{},\"api\":{},\"connection\":{},\"partition\":{}}}",
            if place > 0 { "," } else { "" },
            stall.number,
            text(Some(&stall.executor)),
            stall.began_ms,
            stall.lasted.as_millis(),
            ran_ms.unwrap_or_else(|| "null".to_owned()),
            stall.ended,
            text(Some(&stall.task)),
            text(api.as_deref()),
            text(work.peer.map(|peer| peer.to_string()).as_deref()),
            text(partition.as_deref()),
        );
    }
    out.push_str("]}\n");
    out
}

/// A JSON string, or null.
fn text(text: Option<&str>) -> String {
    let Some(text) = text else {
        return "null".to_owned();
    };
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Work;
    use std::time::Duration;

    #[test]
    fn stalls_are_json_with_names_where_there_are_some() {
        let stall = |number, work| Stall {
            number,
            executor: "shard-0".to_owned(),
            began_ms: 1_700_000_000_000,
            lasted: Duration::from_millis(120),
            ran: None,
            ended: number == 1,
            task: "a\"b\\c\n.rs:1".to_owned(),
            work,
        };
        let known = Work {
            api_key: Some(1),
            peer: Some("[::1]:7".parse().unwrap()),
            partition: Some((5, 3)),
        };
        let stalls = [stall(1, known), stall(2, Work::default())];
        let text = json(&stalls, 50, &Image::empty(Uuid::nil(), 1));
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["threshold_ms"], 50);
        let [newest, oldest] = parsed["stalls"].as_array().unwrap().as_slice() else {
            panic!("{text}")
        };
        assert_eq!(oldest["api"], "Fetch");
        assert_eq!(oldest["connection"], "[::1]:7");
        let partition = format!("{}-3", Uuid::from_u128(5));
        assert_eq!(oldest["partition"], partition.as_str());
        assert_eq!(oldest["task"], "a\"b\\c\n.rs:1");
        assert_eq!(
            (&oldest["ended"], &oldest["lasted_ms"]),
            (&true.into(), &120.into())
        );
        assert!(newest["api"].is_null() && newest["ran_ms"].is_null());
    }
}
