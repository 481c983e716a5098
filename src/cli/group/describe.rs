//! `highwater group describe`: who is in a group, what each reads, and how far it is behind.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::{json, Value};

use super::{all, described};
use crate::cli::remote::RemoteArgs;
use crate::cli::render::{print, print_json, shown, Table};
use crate::cli::CliError;
use crate::client::{
    Cluster, CommittedOffset, ConsumerAssignment, GroupClient, PartitionKey, CONSUMER_PROTOCOL,
    LATEST,
};
use crate::protocol::messages::*;
use crate::protocol::Str;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct DescribeArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    /// The groups.
    #[arg(value_name = "GROUP", required_unless_present = "all")]
    names: Vec<String>,
    /// Every group.
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

pub(super) async fn describe(cluster: &Cluster, args: &DescribeArgs) -> Result<(), CliError> {
    let names = match args.all {
        true => all(cluster)
            .await?
            .iter()
            .map(|group| group.group_id.to_string())
            .collect(),
        false => args.names.clone(),
    };
    let mut documents = Vec::new();
    let mut blank = "";
    for name in &names {
        let client = GroupClient::new(cluster.clone(), name, args.remote.timeout());
        let Some(group) = described(&client).await? else {
            let sentence = format!("there is no group {name}; see `highwater group list`");
            return Err(CliError::Found(sentence));
        };
        let view = View::read(cluster, &client, group).await?;
        match args.remote.json {
            true => documents.push(view.json()),
            false => print(&format!("{blank}{}", view.text()))?,
        }
        blank = "\n";
    }
    match args.remote.json {
        true => print_json(&Value::Array(documents)),
        false => Ok(()),
    }
}

/// A group, and the partitions that it has committed or that a member reads.
struct View {
    group: DescribedGroup,
    members: Vec<Member>,
    partitions: BTreeMap<PartitionKey, Progress>,
}

struct Member {
    member: DescribedGroupMember,
    /// Why the assignment cannot be read, where it cannot.
    assignment: Result<Vec<PartitionKey>, String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    committed: Option<CommittedOffset>,
    /// None if the partition is gone, or has no leader.
    end: Option<i64>,
    /// Who reads it.
    member_id: Option<Str>,
}

impl Progress {
    /// Records that are there and not read yet. A log that was cut below the commit has none.
    fn lag(&self) -> Option<i64> {
        let committed = self.committed.as_ref()?;
        Some((self.end? - committed.offset).max(0))
    }
}

impl View {
    async fn read(
        cluster: &Cluster,
        client: &GroupClient,
        group: DescribedGroup,
    ) -> Result<View, CliError> {
        let mut partitions: BTreeMap<PartitionKey, Progress> = BTreeMap::new();
        for (key, committed) in client.committed(None).await? {
            partitions.entry(key).or_default().committed = Some(committed);
        }
        let members: Vec<Member> = group
            .members
            .iter()
            .map(|member| Member {
                assignment: assignment(&group.protocol_type, member),
                member: member.clone(),
            })
            .collect();
        for member in &members {
            for key in member.assignment.iter().flatten() {
                let progress = partitions.entry(key.clone()).or_default();
                progress.member_id = Some(member.member.member_id.clone());
            }
        }
        let topics: BTreeSet<Str> = partitions.keys().map(|key| key.0.clone()).collect();
        let topics: Vec<Str> = topics.into_iter().collect();
        cluster.metadata(Some(&topics), false).await?;
        let queries: Vec<_> = partitions.keys().map(|key| (key.clone(), LATEST)).collect();
        for (key, answer) in cluster.list_offsets(&queries, false).await? {
            if let (Some(progress), Ok(found)) = (partitions.get_mut(&key), answer) {
                progress.end = Some(found.offset);
            }
        }
        Ok(View {
            group,
            members,
            partitions,
        })
    }

    /// Over all partitions whose lag is known.
    fn total_lag(&self) -> i64 {
        self.partitions.values().filter_map(Progress::lag).sum()
    }

    fn text(&self) -> String {
        let DescribedGroup {
            group_id,
            group_state,
            protocol_type,
            protocol_data,
            ..
        } = &self.group;
        let mut text = format!("group {}\n", shown(group_id));
        text += &format!("  state     {}\n", shown(group_state));
        let protocol = format!("{} {}", shown(protocol_type), protocol_data.as_str());
        text += &format!("  protocol  {}\n", protocol.trim_end());
        text += &format!("  members   {}\n", self.members.len());
        text += &format!("  lag       {}\n", self.total_lag());
        if !self.members.is_empty() {
            text += &self.members_table().to_string();
        }
        if !self.partitions.is_empty() {
            text += &self.partitions_table().to_string();
        }
        text
    }

    fn members_table(&self) -> Table {
        let mut table = Table::new(["MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS"]);
        for Member { member, assignment } in &self.members {
            table.row([
                member.member_id.to_string(),
                member.client_id.to_string(),
                member.client_host.to_string(),
                member
                    .group_instance_id
                    .as_deref()
                    .unwrap_or_default()
                    .to_owned(),
                match assignment {
                    Ok(partitions) => partitions.len().to_string(),
                    Err(_) => "?".to_owned(),
                },
            ]);
        }
        table
    }

    fn partitions_table(&self) -> Table {
        let mut table = Table::new(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"]);
        let number =
            |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
        for ((topic, partition), progress) in &self.partitions {
            table.row([
                topic.to_string(),
                partition.to_string(),
                number(
                    progress
                        .committed
                        .as_ref()
                        .map(|committed| committed.offset),
                ),
                number(progress.end),
                number(progress.lag()),
                progress.member_id.as_deref().unwrap_or_default().to_owned(),
            ]);
        }
        table
    }

    fn json(&self) -> Value {
        let partition = |(topic, partition): &PartitionKey| json!({ "topic": topic.as_str(), "partition": partition });
        let member = |Member { member, assignment }: &Member| {
            json!({
                "member_id": member.member_id.as_str(),
                "instance_id": member.group_instance_id.as_deref(),
                "client_id": member.client_id.as_str(),
                "host": member.client_host.as_str(),
                "partitions": assignment.as_ref().ok().map(|keys| keys.iter().map(partition).collect::<Vec<_>>()),
            })
        };
        let progress = |(key, progress): (&PartitionKey, &Progress)| {
            json!({
                "topic": key.0.as_str(),
                "partition": key.1,
                "committed_offset": progress.committed.as_ref().map(|committed| committed.offset),
                "end_offset": progress.end,
                "lag": progress.lag(),
                "metadata": progress.committed.as_ref().map(|committed| committed.metadata.as_str()),
                "member_id": progress.member_id.as_deref(),
            })
        };
        json!({
            "group": self.group.group_id.as_str(),
            "state": self.group.group_state.as_str(),
            "protocol_type": self.group.protocol_type.as_str(),
            "protocol": self.group.protocol_data.as_str(),
            "total_lag": self.total_lag(),
            "members": self.members.iter().map(member).collect::<Vec<_>>(),
            "partitions": self.partitions.iter().map(progress).collect::<Vec<_>>(),
        })
    }
}

/// What a member reads, by the consumer protocol; other protocols have bytes of their own.
fn assignment(
    protocol_type: &str,
    member: &DescribedGroupMember,
) -> Result<Vec<PartitionKey>, String> {
    if protocol_type != CONSUMER_PROTOCOL {
        return Err(format!("protocol {protocol_type} is not known"));
    }
    let read = ConsumerAssignment::of_bytes(member.member_assignment.clone());
    read.map(|assignment| assignment.partitions().collect())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn view() -> View {
        let key = |partition| (Str::from("t"), partition);
        let committed = |offset| {
            Some(CommittedOffset {
                offset,
                metadata: String::new(),
            })
        };
        let member = DescribedGroupMember {
            member_id: Str::from("m-1"),
            client_id: Str::from("app\n"),
            client_host: Str::from("/127.0.0.1"),
            member_assignment: ConsumerAssignment::of(&[key(0)]).to_bytes().unwrap(),
            ..Default::default()
        };
        let progress = |committed, end, member_id| Progress {
            committed,
            end,
            member_id,
        };
        View {
            group: DescribedGroup {
                group_id: Str::from("g"),
                group_state: Str::from("Stable"),
                protocol_type: Str::from("consumer"),
                protocol_data: Str::from("range"),
                ..Default::default()
            },
            members: vec![Member {
                assignment: assignment("consumer", &member),
                member,
            }],
            partitions: BTreeMap::from([
                (
                    key(0),
                    progress(committed(3), Some(10), Some(Str::from("m-1"))),
                ),
                (key(1), progress(committed(9), Some(4), None)),
                (key(2), progress(None, Some(5), None)),
                (key(3), progress(committed(1), None, None)),
            ]),
        }
    }

    #[test]
    fn a_group_is_told_with_members_offsets_and_lag() {
        assert_eq!(
            view().text(),
            "group g\n\
             \x20 state     Stable\n\
             \x20 protocol  consumer range\n\
             \x20 members   1\n\
             \x20 lag       7\n\
             MEMBER  CLIENT  HOST        INSTANCE  PARTITIONS\n\
             m-1     app\\n   /127.0.0.1         -           1\n\
             TOPIC  PARTITION  COMMITTED  END  LAG  MEMBER\n\
             t              0          3   10    7  m-1\n\
             t              1          9    4    0  -\n\
             t              2          -    5    -  -\n\
             t              3          1    -    -  -\n"
        );
    }

    #[test]
    fn the_document_has_every_figure() {
        let document = view().json();
        assert_eq!(document["total_lag"], 7);
        assert_eq!(
            document["members"][0]["partitions"],
            json!([{ "topic": "t", "partition": 0 }])
        );
        assert_eq!(document["partitions"][2]["committed_offset"], Value::Null);
        assert_eq!(document["partitions"][3]["end_offset"], Value::Null);
    }

    #[test]
    fn an_assignment_that_cannot_be_read_is_unknown_not_empty() {
        let mut member = DescribedGroupMember::default();
        assert_eq!(assignment("consumer", &member), Ok(Vec::new()));
        member.member_assignment = Bytes::from_static(&[0, 0, 0, 0, 0, 9]);
        assert!(assignment("consumer", &member).is_err());
        assert!(assignment("connect", &member).is_err());
    }
}
