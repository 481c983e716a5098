//! How Apache Kafka is run here: as its own scripts and documentation run it in production, but for what a single
//! broker on a share of a machine must differ in. Each setting says why it is there.
//!
//! What is not named is Kafka's default. `vm.swappiness` and mount options are the machine's, for all targets alike.

use std::path::Path;

/// A line of server.properties.
pub struct Setting {
    pub name: &'static str,
    pub value: &'static str,
    why: &'static str,
}

/// Beside the listeners and the directory.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "num.network.threads",
        value: "3",
        why: "as in the server.properties that Kafka comes with",
    },
    Setting {
        name: "num.io.threads",
        value: "8",
        why: "as in the server.properties that Kafka comes with; they wait for flushes, so more than there are CPUs",
    },
    Setting {
        name: "socket.send.buffer.bytes",
        value: "-1",
        why: "the kernel sizes buffers by itself, as for the other brokers; 100 KiB would hold large batches back",
    },
    Setting {
        name: "socket.receive.buffer.bytes",
        value: "-1",
        why: "as the send buffer",
    },
    Setting {
        name: "auto.create.topics.enable",
        value: "false",
        why: "recommended for production",
    },
    Setting {
        name: "offsets.topic.replication.factor",
        value: "1",
        why: "there is one broker",
    },
    Setting {
        name: "transaction.state.log.replication.factor",
        value: "1",
        why: "there is one broker",
    },
    Setting {
        name: "transaction.state.log.min.isr",
        value: "1",
        why: "there is one broker",
    },
    Setting {
        name: "share.coordinator.state.topic.replication.factor",
        value: "1",
        why: "there is one broker",
    },
    Setting {
        name: "share.coordinator.state.topic.min.isr",
        value: "1",
        why: "there is one broker",
    },
    Setting {
        name: "group.initial.rebalance.delay.ms",
        value: "0",
        why: "no wait for members that do not come",
    },
    Setting {
        name: "log.retention.ms",
        value: "-1",
        why: "nothing is deleted while it is measured",
    },
    Setting {
        name: "log.segment.delete.delay.ms",
        value: "1000",
        why: "the room of deleted topics is needed by the next ones",
    },
];

/// The file: a comment above each setting.
pub fn server_properties(data_dir: &Path, broker: u16, controller: u16) -> String {
    let data_dir = data_dir.display();
    let mut text = format!(
        "# One process is broker and controller: less work than two.\n\
         process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         log.dirs={data_dir}\n"
    );
    for Setting { name, value, why } in SETTINGS {
        text += &format!("# {why}\n{name}={value}\n");
    }
    text
}

/// Of a share of the memory, 0: of all that a machine has. The rest is for the page cache, in which Kafka keeps its
/// records.
pub fn heap_bytes(memory: u64) -> u64 {
    /// What Kafka's start script sets.
    const USUAL: u64 = 1 << 30;
    match memory {
        0 => USUAL,
        memory => (memory / 4).min(USUAL),
    }
}

/// Below it Kafka does not start reliably: its log cleaner alone takes 128 MiB.
pub const HEAP_BYTES_MIN: u64 = 256 << 20;

/// Those of Kafka's `kafka-run-class.sh`, and those that its documentation adds.
///
/// Not `-XX:+AlwaysPreTouch`, which neither has: it would lengthen each start and count the whole heap as resident.
pub fn jvm_flags(heap_bytes: u64) -> Vec<String> {
    /// What Kafka's documentation says for a heap of 6 GiB.
    const REGION_MIB_MAX: u64 = 16;
    let mib = heap_bytes >> 20;
    // At least 64 regions. With the usual ones of 1 MiB the request of a large batch would not fit into one.
    let region_mib = (mib / 64).next_power_of_two().clamp(1, REGION_MIB_MAX);
    let mut flags = vec![
        // The heap is of one size from the start, as in kafka-server-start.sh.
        format!("-Xms{mib}m"),
        format!("-Xmx{mib}m"),
        format!("-XX:G1HeapRegionSize={region_mib}m"),
    ];
    let fixed = [
        // kafka-run-class.sh. G1 is named, since Java would take another collector where it has one CPU.
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-XX:MaxInlineLevel=15",
        "-Djava.awt.headless=true",
        // "Java Version" in Kafka's documentation.
        "-XX:MetaspaceSize=96m",
        "-XX:MinMetaspaceFreeRatio=50",
        "-XX:MaxMetaspaceFreeRatio=80",
        // Warnings and errors, to standard error: less work than its usual log.
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ];
    flags.extend(fixed.map(str::to_owned));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_a_quarter_of_the_memory_and_at_most_what_is_usual() {
        assert_eq!(heap_bytes(0), 1 << 30);
        assert_eq!(heap_bytes(16 << 30), 1 << 30);
        assert_eq!(heap_bytes(2 << 30), 512 << 20);
        let flags = jvm_flags(512 << 20);
        assert_eq!(flags[..2], ["-Xms512m", "-Xmx512m"]);
        for (heap, region) in [(256, 4), (512, 8), (1024, 16)] {
            let flag = format!("-XX:G1HeapRegionSize={region}m");
            assert!(jvm_flags(heap << 20).contains(&flag), "{heap}");
        }
    }

    #[test]
    fn every_line_is_a_comment_or_a_setting_and_none_is_set_twice() {
        let text = server_properties(Path::new("/d/data"), 9092, 9093);
        let settings = text.lines().filter(|line| !line.starts_with('#'));
        let mut names: Vec<&str> = settings
            .map(|line| line.split_once('=').unwrap().0)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(text.contains("log.dirs=/d/data\n"));
        assert!(text.contains("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"));
    }
}
