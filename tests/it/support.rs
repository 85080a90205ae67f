//! Test infrastructure: the real service and real Redis servers, each as a value with its own port
//! and folder that stops when it is dropped.

pub mod abuse;
pub mod acl;
pub mod cases;
pub mod client;
pub mod cluster;
pub mod collector;
pub mod envoy;
pub mod fleet;
pub mod hostile_redis;
pub mod load;
pub mod pages;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod raw;
pub mod resp;
pub mod schema;
pub mod sentinels;
pub mod servers;
pub mod stores;
pub mod svg;
pub mod terminal;
pub mod tidegate;
pub mod tls;
pub mod tools;
pub mod upstream;
pub mod web;
