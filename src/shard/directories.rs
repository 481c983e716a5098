//! The data directories as the control executor has them: which partition lies in which,
//! their checkpoint files, which of them has failed.
//!
//! Where a partition lies is recorded with it in the metadata log, by the directory's id
//! (`directory.id` of `meta.properties`, KIP-858): so a disk that is missing, or was replaced by
//! an empty one, takes its partitions offline, and is never taken for a reason to create
//! them anew. A partition that somebody moved by hand to another directory while the
//! broker was stopped is found there.
//!
//! What it is not: it writes nothing by itself (`checkpoints.rs` says when), and it opens
//! no partition.

use super::checkpoints::Dirty;
use super::messages::{CheckpointLine, Elsewhere, Homeless, PartitionKey, PlacedPartition};
use super::ControlError;
use crate::config::BrokerConfig;
use crate::metadata::{Image, METADATA_TOPIC_NAME};
use crate::runtime::{IoErrorKind, Rt};
use crate::storage::{uuid_text, DataDir, DataDirError, PartitionName, StartKind};
use std::cell::RefCell;
use std::path::PathBuf;
use uuid::Uuid;

/// All data directories, in the order of `log.dirs`.
pub(super) struct Directories {
    all: Vec<Directory>,
    /// The one with the metadata log.
    metadata: usize,
    node_id: i32,
}

/// One data directory.
pub(super) struct Directory {
    pub path: PathBuf,
    /// Open and locked; `None` if that failed at the start.
    data: Option<DataDir>,
    /// Why it is offline, if it is.
    failure: RefCell<Option<String>>,
    /// Which of its files lag behind.
    pub dirty: Dirty,
}

impl Directories {
    /// Opens and locks all of them. One that cannot be read is offline, unless it is the
    /// one with the metadata log; one that belongs to another broker, or is in use, is an error.
    pub async fn open(rt: &Rt, config: &BrokerConfig) -> Result<Directories, ControlError> {
        let metadata = find_metadata(rt, &config.data_dirs).await?;
        let node_id = config.node_id;
        let path = &config.data_dirs[metadata];
        let first = DataDir::open(rt, path, node_id, None).await?;
        let cluster_id = first.meta().cluster_id;
        let mut first = Some(first);
        let mut all = Vec::with_capacity(config.data_dirs.len());
        for (at, path) in config.data_dirs.iter().enumerate() {
            let opened = match (at == metadata, first.take_if(|_| at == metadata)) {
                (true, Some(first)) => Ok(first),
                _ => DataDir::open(rt, path, node_id, Some(cluster_id)).await,
            };
            let directory = |data, failure| Directory {
                path: path.clone(),
                data,
                failure: RefCell::new(failure),
                dirty: Dirty::all(),
            };
            all.push(match opened {
                Ok(data) => directory(Some(data), None),
                Err(DataDirError::Io(error)) => {
                    tracing::error!(dir = %path.display(), %error, "a data directory is offline");
                    directory(None, Some(error.to_string()))
                }
                Err(error) => return Err(error.into()),
            });
        }
        let directories = Directories {
            all,
            metadata,
            node_id,
        };
        directories.refuse_twins()?;
        Ok(directories)
    }

    /// Two paths that lead to one directory would be two writers of its files. (The lock
    /// tells that too, where it is one of the process's own.)
    fn refuse_twins(&self) -> Result<(), ControlError> {
        let mut seen: Vec<(Uuid, &PathBuf)> = Vec::new();
        for directory in &self.all {
            let Some(data) = &directory.data else {
                continue;
            };
            let id = data.meta().directory_id;
            if let Some((_, twin)) = seen.iter().find(|(known, _)| *known == id) {
                return Err(ControlError::Twins {
                    one: twin.display().to_string(),
                    other: directory.path.display().to_string(),
                });
            }
            seen.push((id, &directory.path));
        }
        Ok(())
    }

    /// The one with the metadata log.
    pub fn metadata(&self) -> (usize, &DataDir) {
        let data = self.all[self.metadata].data.as_ref();
        (self.metadata, data.expect("without it nothing starts"))
    }

    pub fn get(&self, dir: usize) -> &Directory {
        &self.all[dir]
    }

    pub fn all(&self) -> impl Iterator<Item = (usize, &Directory)> {
        self.all.iter().enumerate()
    }

    /// Those that can be written.
    pub fn online(&self) -> impl Iterator<Item = (usize, &Directory, &DataDir)> {
        let usable = self.all().filter(|(_, directory)| directory.is_online());
        usable.filter_map(|(at, directory)| Some((at, directory, directory.data.as_ref()?)))
    }

    /// The ids of those that take new partitions. None where there is only one directory: then
    /// there is nothing to record, and earlier versions of the broker read the records.
    pub fn online_ids(&self) -> Vec<Uuid> {
        if self.all.len() < 2 {
            return Vec::new();
        }
        let online = self.online();
        online
            .map(|(_, _, data)| data.meta().directory_id)
            .collect()
    }

    /// How the last stop was, of all together.
    pub fn start_kind(&self) -> StartKind {
        let kinds = self.all.iter().filter_map(|d| d.data.as_ref());
        let worst = |kind: &StartKind| match kind {
            StartKind::Unclean => 0,
            StartKind::Clean => 1,
            StartKind::Fresh => 2,
        };
        let kinds = kinds.map(DataDir::start_kind);
        kinds.min_by_key(worst).unwrap_or(StartKind::Fresh)
    }

    /// Takes a directory offline. False if it was.
    pub fn fail(&self, dir: usize, reason: &str) -> bool {
        let mut failure = self.all[dir].failure.borrow_mut();
        let first = failure.is_none();
        failure.get_or_insert_with(|| reason.to_owned());
        first
    }

    /// Every partition of the image: where it lies, with what the checkpoint files say of it.
    pub fn place(&self, image: &Image) -> Vec<PlacedPartition> {
        let topics = image.topics();
        let partitions = topics.flat_map(|topic| topic.partitions.iter().map(move |p| (topic, p)));
        let placed = partitions.map(|(topic, partition)| {
            let name = PartitionName {
                topic: topic.name.to_string(),
                partition: partition.index,
            };
            let recorded = partition.directory(self.node_id);
            let home = self.home(&name, recorded);
            let key = PartitionKey {
                topic_id: topic.id,
                index: partition.index,
            };
            // One that was moved by hand may have left its lines behind.
            let lines_at = [
                home.as_ref().ok().map(|home| home.0),
                self.index_of(&recorded),
            ];
            let lines = lines_at.into_iter().flatten();
            let mut lines = lines.map(|dir| self.line(key, &name, dir));
            let line = lines.find(|line| !line.is_empty());
            let dir = home.as_ref().map_or(self.metadata, |home| home.0);
            PlacedPartition {
                line: match line {
                    Some(line) => CheckpointLine { dir, ..line },
                    None => CheckpointLine::of_nothing(key, name.topic, dir),
                },
                may_create: home.as_ref().is_ok_and(|home| home.1),
                home: home.map(|home| home.0),
            }
        });
        placed.collect()
    }

    /// Those of the placed partitions that are not where they are recorded.
    pub fn elsewhere(&self, image: &Image, placed: &[PlacedPartition]) -> Elsewhere {
        let mut elsewhere = Elsewhere::new();
        for PlacedPartition { line, home, .. } in placed {
            let Some(topic) = image.topic_by_id(&line.key.topic_id) else {
                continue;
            };
            let recorded = topic.partitions[line.key.index as usize].directory(self.node_id);
            let recorded = self.index_of(&recorded).unwrap_or(self.metadata);
            let home = home.as_ref().ok().copied();
            if home != Some(recorded) {
                elsewhere.insert(line.key, home);
            }
        }
        elsewhere
    }

    /// Says which partitions' directories are of no topic that there is: what a directory held
    /// that was offline when the topic was deleted. They are left alone.
    pub fn tell_strays(&self, image: &Image) {
        for (_, directory, data) in self.online() {
            let is_known = |name: &PartitionName| {
                let topic = image.topic(&name.topic);
                let count = topic.map_or(0, |topic| topic.partitions.len());
                name.topic == METADATA_TOPIC_NAME
                    || usize::try_from(name.partition).is_ok_and(|index| index < count)
            };
            let partitions = data.partitions().iter();
            let strays: Vec<String> = partitions
                .filter(|name| !is_known(name))
                .map(ToString::to_string)
                .collect();
            if let Some(first) = strays.first() {
                let (count, path) = (strays.len(), directory.path.display());
                tracing::warn!("{count} directories in {path} are of no topic and only take space, the first is {first}; remove them if nobody misses them");
            }
        }
    }

    /// The directory where the partition is or is to be, and whether it may be created there.
    fn home(&self, name: &PartitionName, recorded: Uuid) -> Result<(usize, bool), Homeless> {
        let holders: Vec<usize> = self
            .online()
            .filter(|(_, _, data)| data.partitions().binary_search(name).is_ok())
            .map(|(at, _, _)| at)
            .collect();
        let homeless = |dir, reason| Err(Homeless { dir, reason });
        if let Some(dir) = self.index_of(&recorded) {
            if let Some(failure) = self.all[dir].failure() {
                let path = self.paths(&[dir]);
                return homeless(
                    Some(dir),
                    format!("its data directory {path} is offline: {failure}"),
                );
            }
            return match &holders[..] {
                [] => Ok((dir, true)),
                holders if holders.contains(&dir) => {
                    if holders.len() > 1 {
                        let (all, path) = (self.paths(holders), self.paths(&[dir]));
                        tracing::warn!(partition = %name, "there is one in each of {all}; the one in {path} is recorded and used, move the others away");
                    }
                    Ok((dir, true))
                }
                [moved] => {
                    let (here, there) = (self.paths(&[*moved]), self.paths(&[dir]));
                    tracing::warn!(partition = %name, "it was recorded in {there} and is in {here}: it is used there");
                    Ok((*moved, false))
                }
                holders => homeless(None, self.several(holders)),
            };
        }
        let offline: Vec<usize> = self
            .all()
            .filter(|(_, directory)| !directory.is_online())
            .map(|(at, _)| at)
            .collect();
        // It may be in one that cannot be read now: what has its name elsewhere may be of a
        // topic that was deleted.
        if !offline.is_empty() && (!recorded.is_nil() || holders.is_empty()) {
            let paths = self.paths(&offline);
            let dir = offline.first().copied().filter(|_| offline.len() == 1);
            return homeless(dir, format!("it may be in {paths}, which is offline"));
        }
        match (&holders[..], recorded.is_nil()) {
            ([dir], nil) => Ok((*dir, nil && offline.is_empty())),
            ([], true) => Ok((self.metadata, true)),
            ([], false) => homeless(
                None,
                format!(
                    "it was put into a data directory with directory.id={}, which is not among log.dirs; bring that directory back, or delete the topic",
                    uuid_text::encode(recorded)
                ),
            ),
            (holders, _) => homeless(None, self.several(holders)),
        }
    }

    fn paths(&self, dirs: &[usize]) -> String {
        let paths = dirs
            .iter()
            .map(|dir| self.all[*dir].path.display().to_string());
        paths.collect::<Vec<_>>().join(" and ")
    }

    fn several(&self, holders: &[usize]) -> String {
        let paths = self.paths(holders);
        format!("there is one in each of {paths}, and only one can be right; move the others away")
    }

    fn index_of(&self, id: &Uuid) -> Option<usize> {
        let has = |directory: &Directory| {
            let data = directory.data.as_ref();
            data.is_some_and(|data| data.meta().directory_id == *id)
        };
        self.all.iter().position(has)
    }

    /// What each directory's files say of a partition.
    pub fn lines_everywhere(&self, of: &CheckpointLine) -> Vec<CheckpointLine> {
        let name = PartitionName {
            topic: of.topic.clone(),
            partition: of.key.index,
        };
        let lines = self
            .online()
            .map(|(dir, _, _)| self.line(of.key, &name, dir));
        lines.filter(|line| !line.is_empty()).collect()
    }

    fn line(&self, key: PartitionKey, name: &PartitionName, dir: usize) -> CheckpointLine {
        let mut line = CheckpointLine::of_nothing(key, name.topic.clone(), dir);
        if let Some(data) = &self.all[dir].data {
            let (topic, index) = (&name.topic, name.partition);
            line.recovery_point = data.recovery_point(topic, index);
            line.high_watermark = data.high_watermark(topic, index);
            line.log_start = data.log_start(topic, index);
            line.cleaned_to = data.cleaned_to(topic, index);
        }
        line
    }
}

impl Directory {
    pub fn is_online(&self) -> bool {
        self.failure.borrow().is_none()
    }

    /// Why it is offline, if it is.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Whether its last stop was clean.
    pub fn is_clean(&self) -> bool {
        let data = self.data.as_ref();
        data.is_some_and(|data| data.start_kind() == StartKind::Clean)
    }

    /// Its id; nil if it could not be opened.
    pub fn id(&self) -> Uuid {
        let data = self.data.as_ref();
        data.map_or(Uuid::nil(), |data| data.meta().directory_id)
    }
}

/// Where the metadata log is: the one directory that has it, or the first, at the first start.
async fn find_metadata(rt: &Rt, paths: &[PathBuf]) -> Result<usize, ControlError> {
    let mut found = Vec::new();
    let (mut formatted, mut has_run) = (Vec::new(), Vec::new());
    let mut unreadable = None;
    for (at, path) in paths.iter().enumerate() {
        let dir = rt.dir(path);
        let log = dir.subdir(&format!("{METADATA_TOPIC_NAME}-0"));
        match log.exists().await {
            Ok(true) => found.push(at),
            Ok(false) => {}
            Err(error) if error.kind == IoErrorKind::NotFound => {}
            Err(error) => unreadable = Some(error),
        }
        match DataDir::is_formatted(&dir).await {
            Ok(true) => formatted.push(at),
            Ok(false) => {}
            Err(error) => unreadable = Some(error),
        }
        match DataDir::has_run(&dir).await {
            Ok(true) => has_run.push(at),
            Ok(false) => {}
            Err(error) => unreadable = Some(error),
        }
    }
    match (&found[..], unreadable) {
        ([one], _) => Ok(*one),
        ([one, other, ..], _) => Err(ControlError::TwoMetadataLogs {
            one: paths[*one].display().to_string(),
            other: paths[*other].display().to_string(),
        }),
        // It may be there.
        ([], Some(error)) => Err(DataDirError::Io(error).into()),
        // A disk that is not mounted. (A lone directory without its metadata log is refused
        // by the controller, which knows what should be there.)
        ([], None) if paths.len() > 1 && !has_run.is_empty() => Err(ControlError::NoMetadataLog {
            used: paths[has_run[0]].display().to_string(),
        }),
        // The first one is formatted first.
        ([], None) if !formatted.is_empty() && !formatted.contains(&0) => {
            Err(ControlError::NoMetadataLog {
                used: paths[formatted[0]].display().to_string(),
            })
        }
        ([], None) => Ok(0),
    }
}
