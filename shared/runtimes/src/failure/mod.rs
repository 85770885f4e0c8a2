//! What a failure is about, from structured errors and from the texts that runtimes really send.
