//! The one integration binary: a module per area, real servers started by the tests.

mod limits_files;
mod support;
