//! Calls in the simulator: at once, too late, and for a look only.

use super::simulated::{create, open};
use super::*;
use crate::controller::{ControllerError, TopicSelector};
use crate::protocol::ErrorCode;
use crate::runtime::sim::World;
use crate::runtime::{Queue, SyncSite};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn given_a_closed_controller_when_asked_then_not_controller() {
    let world = World::new(4);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        controller.close().await.unwrap();
        assert_eq!(
            create(&controller, "t").await,
            Err(ErrorCode::NotController)
        );
        let fault = controller.allocate_producer_ids(1).await.unwrap_err();
        assert_eq!(fault.code, ErrorCode::NotController);
        assert!(matches!(
            controller.close().await,
            Err(ControllerError::Closed)
        ));
    });
}

#[test]
fn given_calls_at_once_then_they_take_effect_in_order_and_share_flushes() {
    let world = World::new(5);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, start) = open(&rt, None).await.unwrap();
        let flushes = node.disk().sync_count(SyncSite::SegmentFlush);
        let answers = Rc::new(RefCell::new(vec![]));
        let left = Rc::new(Cell::new(40));
        for i in 0..40 {
            let (controller, answers, left) = (controller.clone(), answers.clone(), left.clone());
            rt.spawn(Queue::Latency, async move {
                let topic = new_topic(&format!("t-{}", i % 4));
                let (_, delta) = match i % 8 {
                    0..4 => {
                        let (results, delta) = controller.create_topics(vec![topic], false).await;
                        (results.len(), delta)
                    }
                    _ => {
                        let selector = TopicSelector::Name(topic.name);
                        let (results, delta) = controller.delete_topics(vec![selector]).await;
                        (results.len(), delta)
                    }
                };
                answers.borrow_mut().extend(delta);
                left.set(left.get() - 1);
            });
        }
        while left.get() > 0 {
            rt.sleep(Duration::from_millis(1)).await;
        }
        let mut deltas = answers.take();
        deltas.sort_by_key(|delta| delta.offset);
        let copy = deltas.iter().fold(start, |image, delta| image.apply(delta));
        assert_eq!(copy, controller.image());
        let flushes = node.disk().sync_count(SyncSite::SegmentFlush) - flushes;
        assert!(
            flushes < deltas.len() as u64,
            "{flushes} flushes, {} deltas",
            deltas.len()
        );
    });
}

#[test]
fn given_validate_only_then_nothing_changes() {
    let world = World::new(6);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, start) = open(&rt, None).await.unwrap();
        let topics = vec![new_topic("a"), new_topic("a b")];
        let (results, delta) = controller.create_topics(topics, true).await;
        assert_eq!(results[0].as_ref().unwrap().id, Uuid::nil());
        assert_eq!(
            results[1].as_ref().unwrap_err().code,
            ErrorCode::InvalidTopicException
        );
        assert!(delta.is_none());
        assert_eq!(controller.image(), start);
    });
}
