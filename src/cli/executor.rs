//! An executor for a tool: one, on no CPU in particular, for as long as the work takes.

use std::future::Future;

use super::CliError;
use crate::runtime::Rt;

/// Runs `work` to its end on an executor of its own.
pub(super) fn run<T, F>(_work: impl FnOnce(Rt) -> F + Send + 'static) -> Result<T, CliError>
where
    F: Future<Output = Result<T, CliError>> + 'static,
    T: Send + 'static,
{
    Err(CliError::Found(
        "this build holds no executor yet".to_owned(),
    ))
}
