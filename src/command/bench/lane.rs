//! A connection that requests are sent on. A new one takes its place when the service closes it.
//!
//! Services close connections after a while, so that callers spread over new replicas: first they send
//! GOAWAY, and answer what they have. A request that comes too late was not taken, and is sent again on
//! the new connection. So a bench may last longer than any connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Mutex;

use super::call::{Failure, Service};

/// Connections that one request is tried on.
const TRIES_MAX: usize = 5;

/// A place for a connection.
pub(super) struct Lane {
    service: Rc<Service>,
    sender: RefCell<SendRequest<Bytes>>,
    /// How often the connection was replaced.
    generation: Cell<u64>,
    connecting: Mutex<()>,
}

/// A lane for one sender of requests.
pub(super) struct LaneHandle {
    lane: Rc<Lane>,
    sender: SendRequest<Bytes>,
    generation: u64,
}

impl Lane {
    /// # Errors
    /// The connection cannot be opened. The message is for people.
    pub(super) async fn open(service: Rc<Service>) -> Result<Rc<Self>, String> {
        let sender = RefCell::new(service.connect().await?);
        let (generation, connecting) = (Cell::new(0), Mutex::new(()));
        Ok(Rc::new(Self { service, sender, generation, connecting }))
    }

    pub(super) fn handle(self: &Rc<Self>) -> LaneHandle {
        let sender = self.sender.borrow().clone();
        LaneHandle { lane: Rc::clone(self), sender, generation: self.generation.get() }
    }

    /// Replaces the connection, unless another sender has since this generation.
    async fn replace(&self, generation: u64) -> Result<(), String> {
        let _connecting = self.connecting.lock().await;
        if self.generation.get() == generation {
            let sender = self.service.connect().await?;
            self.sender.replace(sender);
            self.generation.set(generation + 1);
        }
        Ok(())
    }
}

impl LaneHandle {
    /// Sends `message` and returns whether the service allows the request.
    pub(super) async fn call(&mut self, message: Bytes) -> Result<bool, Failure> {
        for _ in 0..TRIES_MAX {
            match self.lane.service.call(&mut self.sender, message.clone()).await {
                Err(Failure::Closing) => self.reconnect().await.map_err(Failure::Lost)?,
                outcome => return outcome,
            }
        }
        Err(Failure::Lost(format!("the service closed {TRIES_MAX} connections in a row")))
    }

    /// Takes the new connection, which is opened if no other sender has.
    async fn reconnect(&mut self) -> Result<(), String> {
        self.lane.replace(self.generation).await?;
        self.sender = self.lane.sender.borrow().clone();
        self.generation = self.lane.generation.get();
        Ok(())
    }
}
