//! One connection to one broker.

use super::ClientError;
use crate::protocol::codec::Versioned;
use crate::protocol::messages::*;
use crate::protocol::{
    frame_length, request_frame, ApiKey, DecodeError, ErrorCode, FrameError, Message, Reader,
    ResponseHeader, Str,
};
use crate::runtime::local::{channel, oneshot, OneshotReceiver, OneshotSender, Receiver, Sender};
use crate::runtime::{Conn, ConnCloser, ConnReader, ConnWriter, Queue, Rt};
use bytes::{Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

/// A request that has an answer.
pub trait Call: Message {
    /// The answer.
    type Response: Message;
}

macro_rules! calls {
    ($($request:ty => $response:ty),* $(,)?) => {
        $(impl Call for $request { type Response = $response; })*
    };
}

calls! {
    ApiVersionsRequest => ApiVersionsResponse,
    CreateTopicsRequest => CreateTopicsResponse,
    DeleteTopicsRequest => DeleteTopicsResponse,
    FetchRequest => FetchResponse,
    ListOffsetsRequest => ListOffsetsResponse,
    MetadataRequest => MetadataResponse,
    OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse,
    ProduceRequest => ProduceResponse,
    AlterConfigsRequest => AlterConfigsResponse,
    CreatePartitionsRequest => CreatePartitionsResponse,
    DeleteRecordsRequest => DeleteRecordsResponse,
    DescribeClusterRequest => DescribeClusterResponse,
    DescribeConfigsRequest => DescribeConfigsResponse,
    DescribeProducersRequest => DescribeProducersResponse,
    DescribeTopicPartitionsRequest => DescribeTopicPartitionsResponse,
    IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse,
    InitProducerIdRequest => InitProducerIdResponse,
    FindCoordinatorRequest => FindCoordinatorResponse,
    JoinGroupRequest => JoinGroupResponse,
    SyncGroupRequest => SyncGroupResponse,
    HeartbeatRequest => HeartbeatResponse,
    LeaveGroupRequest => LeaveGroupResponse,
    OffsetCommitRequest => OffsetCommitResponse,
    OffsetFetchRequest => OffsetFetchResponse,
    OffsetDeleteRequest => OffsetDeleteResponse,
    DescribeGroupsRequest => DescribeGroupsResponse,
    ListGroupsRequest => ListGroupsResponse,
    DeleteGroupsRequest => DeleteGroupsResponse,
    DescribeAclsRequest => DescribeAclsResponse,
    CreateAclsRequest => CreateAclsResponse,
    DeleteAclsRequest => DeleteAclsResponse,
    AlterReplicaLogDirsRequest => AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest => DescribeLogDirsResponse,
    ElectLeadersRequest => ElectLeadersResponse,
    AlterPartitionReassignmentsRequest => AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest => ListPartitionReassignmentsResponse,
    DescribeClientQuotasRequest => DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest => DescribeUserScramCredentialsResponse,
    DescribeQuorumRequest => DescribeQuorumResponse,
    ListConfigResourcesRequest => ListConfigResourcesResponse,
}

/// How a connection behaves.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// What the client calls itself (`client.id`).
    pub client_id: String,
    /// How long connecting may take (`socket.connection.setup.timeout.ms`), and then the first answer.
    pub connect_timeout: Duration,
    /// How long an answer may take (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// Requests that may be unanswered at once.
    pub in_flight_max: usize,
    /// The largest answer, bytes.
    pub response_bytes_max: usize,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            client_id: "highwater".to_string(),
            connect_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            in_flight_max: 1024,
            response_bytes_max: 256 << 20,
        }
    }
}

/// A connection whose versions are negotiated. Cheap to clone; it closes when the
/// last clone is dropped.
#[derive(Clone)]
pub struct BrokerConnection(Rc<Handle>);

struct Handle {
    rt: Rt,
    options: ConnectionOptions,
    peer: SocketAddr,
    closer: ConnCloser,
    frames: Sender<Vec<Bytes>>,
    shared: Rc<Shared>,
    next_correlation: Cell<i32>,
    versions: RefCell<HashMap<i16, RangeInclusive<i16>>>,
}

/// What the handle and the connection's tasks share.
struct Shared {
    pending: RefCell<VecDeque<Pending>>,
    failure: RefCell<Option<ClientError>>,
}

struct Pending {
    correlation_id: i32,
    answer: OneshotSender<Bytes>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.closer.close();
    }
}

impl BrokerConnection {
    /// Connects and asks what the broker serves.
    pub async fn connect(
        rt: &Rt,
        peer: SocketAddr,
        options: ConnectionOptions,
    ) -> Result<BrokerConnection, ClientError> {
        let conn = Self::dial(rt, peer, options.connect_timeout).await?;
        let closer = conn.closer();
        let (reader, writer) = conn.split();
        let (frames, to_send) = channel(options.in_flight_max.max(1));
        let shared = Rc::new(Shared {
            pending: RefCell::new(VecDeque::new()),
            failure: RefCell::new(None),
        });
        rt.spawn(
            Queue::Latency,
            write_frames(writer, to_send, shared.clone(), closer.clone()),
        );
        rt.spawn(
            Queue::Latency,
            read_answers(
                reader,
                shared.clone(),
                peer,
                options.response_bytes_max,
                closer.clone(),
            ),
        );
        let connection = BrokerConnection(Rc::new(Handle {
            rt: rt.clone(),
            options,
            peer,
            closer,
            frames,
            shared,
            next_correlation: Cell::new(0),
            versions: RefCell::new(HashMap::new()),
        }));
        let limit = connection.0.options.connect_timeout;
        let detail = match rt.timeout(limit, connection.negotiate()).await {
            Ok(Ok(())) => return Ok(connection),
            // What listens there took a frame of ours and made nothing of it.
            Ok(Err(ClientError::Closed { .. } | ClientError::Io(_))) => {
                "it closed the connection when asked which APIs it offers".to_owned()
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let limit_ms = limit.as_millis();
                format!("it did not say within {limit_ms} ms which APIs it offers")
            }
        };
        Err(ClientError::NotABroker {
            peer: peer.to_string(),
            detail,
        })
    }

    async fn dial(rt: &Rt, peer: SocketAddr, limit: Duration) -> Result<Conn, ClientError> {
        let unreachable = |detail| ClientError::Unreachable {
            peer: peer.to_string(),
            detail,
        };
        match rt.timeout(limit, rt.connect(peer)).await {
            Ok(connected) => connected.map_err(|error| unreachable(error.detail)),
            Err(_) => Err(unreachable(format!(
                "no answer within {} ms",
                limit.as_millis()
            ))),
        }
    }

    /// The broker's address.
    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// False once it has failed or was closed: every further call fails.
    pub fn is_open(&self) -> bool {
        self.0.shared.failure.borrow().is_none()
    }

    /// The highest version of an API that both sides know.
    pub fn version_of(&self, api: ApiKey) -> Result<i16, ClientError> {
        let ours = api.decoded_versions();
        let theirs = self.0.versions.borrow().get(&api.code()).cloned();
        let shared = theirs
            .as_ref()
            .map(|theirs| (*ours.end()).min(*theirs.end()))
            .filter(|version| {
                ours.contains(version) && theirs.as_ref().is_some_and(|t| t.contains(version))
            });
        shared.ok_or_else(|| ClientError::UnsupportedVersion {
            peer: self.0.peer.to_string(),
            api,
            ours,
            theirs,
        })
    }

    /// Sends a request in the negotiated version and waits for its answer.
    pub async fn call<Q: Call>(&self, request: &Q) -> Result<Q::Response, ClientError> {
        self.start(request).await?.await
    }

    /// Sends a request and returns the wait for its answer, so that more can follow.
    pub async fn start<Q: Call>(
        &self,
        request: &Q,
    ) -> Result<impl Future<Output = Result<Q::Response, ClientError>> + 'static, ClientError> {
        self.start_as(request, self.version_of(Q::KEY)?).await
    }

    /// The same in a version of the caller's choice.
    pub async fn start_as<Q: Call>(
        &self,
        request: &Q,
        version: i16,
    ) -> Result<impl Future<Output = Result<Q::Response, ClientError>> + 'static, ClientError> {
        let answer = self.send(request, version).await?;
        let connection = self.clone();
        Ok(async move {
            let frame = connection.wait(answer).await?;
            connection.decode::<Q>(frame, version)
        })
    }

    /// Sends a request that has no answer (Produce with acks=0).
    pub async fn send_only<Q: Call>(&self, request: &Q) -> Result<(), ClientError> {
        let version = self.version_of(Q::KEY)?;
        self.send_only_as(request, version).await
    }

    /// The same in a version of the caller's choice.
    pub async fn send_only_as<Q: Call>(
        &self,
        request: &Q,
        version: i16,
    ) -> Result<(), ClientError> {
        self.check_open()?;
        let (_, chunks) = self.encode(request, version)?;
        self.enqueue(chunks).await
    }

    async fn negotiate(&self) -> Result<(), ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from("highwater"),
            client_software_version: Str::from(env!("CARGO_PKG_VERSION")),
        };
        let newest = *ApiVersionsRequest::VERSIONS.end();
        let answer = self.send(&request, newest).await?;
        let frame = self.wait(answer).await?;
        // A broker that does not know our version answers in version 0 (KIP-511).
        let unknown =
            frame.len() >= 6 && frame[4..6] == ErrorCode::UnsupportedVersion.code().to_be_bytes();
        let response = if unknown {
            let answer = self.send(&request, 0).await?;
            let frame = self.wait(answer).await?;
            self.decode::<ApiVersionsRequest>(frame, 0)?
        } else {
            self.decode::<ApiVersionsRequest>(frame, newest)?
        };
        if response.error_code != 0 {
            return Err(ClientError::NotABroker {
                peer: self.0.peer.to_string(),
                detail: format!("ApiVersions failed with error {}", response.error_code),
            });
        }
        *self.0.versions.borrow_mut() = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version..=api.max_version))
            .collect();
        Ok(())
    }

    fn encode<Q: Call>(&self, request: &Q, version: i16) -> Result<(i32, Vec<Bytes>), ClientError> {
        let correlation_id = self.0.next_correlation.get();
        self.0.next_correlation.set(correlation_id.wrapping_add(1));
        let client_id = Str::from(self.0.options.client_id.clone());
        let chunks = request_frame(correlation_id, Some(&client_id), version, request)?;
        Ok((correlation_id, chunks))
    }

    async fn send<Q: Call>(
        &self,
        request: &Q,
        version: i16,
    ) -> Result<OneshotReceiver<Bytes>, ClientError> {
        self.check_open()?;
        let (correlation_id, chunks) = self.encode(request, version)?;
        let (answer, wait) = oneshot();
        self.0.shared.pending.borrow_mut().push_back(Pending {
            correlation_id,
            answer,
        });
        self.enqueue(chunks).await?;
        Ok(wait)
    }

    /// Once the reading task has ended nobody would tell a new request so.
    fn check_open(&self) -> Result<(), ClientError> {
        match &*self.0.shared.failure.borrow() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    async fn enqueue(&self, chunks: Vec<Bytes>) -> Result<(), ClientError> {
        self.0.frames.send(chunks).await.map_err(|_| self.failure())
    }

    async fn wait(&self, answer: OneshotReceiver<Bytes>) -> Result<Bytes, ClientError> {
        let timeout = self.0.options.request_timeout;
        match self.0.rt.timeout(timeout, answer).await {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(self.failure()),
            Err(_) => {
                // Its answer may still come, and would be taken for another's.
                let error = ClientError::TimedOut {
                    peer: self.0.peer.to_string(),
                    timeout_ms: timeout.as_millis() as u64,
                };
                self.0.shared.fail(error.clone());
                self.0.closer.close();
                Err(error)
            }
        }
    }

    fn decode<Q: Call>(&self, frame: Bytes, version: i16) -> Result<Q::Response, ClientError> {
        let decode = || -> Result<Q::Response, DecodeError> {
            let mut reader = Reader::new(frame);
            ResponseHeader::decode(&mut reader, Q::KEY, version)?;
            let response = Q::Response::decode_versioned(&mut reader, version)?;
            reader.finish()?;
            Ok(response)
        };
        decode().map_err(|error| ClientError::Decode {
            peer: self.0.peer.to_string(),
            error,
        })
    }

    fn failure(&self) -> ClientError {
        let failure = self.0.shared.failure.borrow().clone();
        failure.unwrap_or_else(|| ClientError::Closed {
            peer: self.0.peer.to_string(),
        })
    }
}

async fn write_frames(
    mut writer: ConnWriter,
    mut to_send: Receiver<Vec<Bytes>>,
    shared: Rc<Shared>,
    closer: ConnCloser,
) {
    while let Some(mut chunks) = to_send.recv().await {
        if let Err(error) = writer.write_all(&mut chunks).await {
            shared.fail(ClientError::Io(error));
            closer.close();
            return;
        }
    }
}

async fn read_answers(
    mut reader: ConnReader,
    shared: Rc<Shared>,
    peer: SocketAddr,
    bytes_max: usize,
    closer: ConnCloser,
) {
    loop {
        match read_frame(&mut reader, peer, bytes_max).await {
            Ok(frame) => {
                if let Err(error) = shared.deliver(frame, peer) {
                    shared.fail(error);
                    break;
                }
            }
            Err(error) => {
                shared.fail(error);
                break;
            }
        }
    }
    closer.close();
    // Whoever waits learns that no answer will come.
    let left = std::mem::take(&mut *shared.pending.borrow_mut());
    drop(left);
}

impl Shared {
    fn fail(&self, error: ClientError) {
        self.failure.borrow_mut().get_or_insert(error);
    }

    fn deliver(&self, frame: Bytes, peer: SocketAddr) -> Result<(), ClientError> {
        let not_a_broker = |detail: &str| ClientError::NotABroker {
            peer: peer.to_string(),
            detail: detail.to_string(),
        };
        let first = self.pending.borrow_mut().pop_front();
        let pending = first.ok_or_else(|| not_a_broker("it answered what was not asked"))?;
        let correlation_id = frame
            .first_chunk::<4>()
            .map(|bytes| i32::from_be_bytes(*bytes));
        if correlation_id != Some(pending.correlation_id) {
            return Err(not_a_broker("its answers are out of order"));
        }
        // Who asked may have stopped waiting.
        let _ = pending.answer.send(frame);
        Ok(())
    }
}

async fn read_frame(
    reader: &mut ConnReader,
    peer: SocketAddr,
    bytes_max: usize,
) -> Result<Bytes, ClientError> {
    let mut prefix = [0; 4];
    fill(reader, &mut prefix, peer).await?;
    let length = frame_length(prefix, bytes_max).map_err(|error| ClientError::NotABroker {
        peer: peer.to_string(),
        detail: match error {
            FrameError::Negative(length) => format!("it announces an answer of {length} bytes"),
            FrameError::TooLarge { length, max } => {
                format!("it announces an answer of {length} bytes, and we read at most {max}")
            }
        },
    })?;
    let mut frame = BytesMut::zeroed(length);
    fill(reader, &mut frame, peer).await?;
    Ok(frame.freeze())
}

async fn fill(
    reader: &mut ConnReader,
    buf: &mut [u8],
    peer: SocketAddr,
) -> Result<(), ClientError> {
    let mut done = 0;
    while done < buf.len() {
        let read = reader.read(&mut buf[done..]).await?;
        if read == 0 {
            return Err(ClientError::Closed {
                peer: peer.to_string(),
            });
        }
        done += read;
    }
    Ok(())
}
