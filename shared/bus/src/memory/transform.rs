//! Subjects under which a stream stores, as a server makes them.

use crate::event_log::SubjectTransform;

/// The subject under which a message is stored; none: as published.
pub(super) fn transformed(transform: &SubjectTransform, subject: &str) -> Option<String> {
    let (source, tokens): (Vec<&str>, Vec<&str>) = (transform.source.split('.').collect(), subject.split('.').collect());
    let fits = source.len() == tokens.len() && source.iter().zip(&tokens).all(|(wanted, token)| *wanted == "*" || wanted == token);
    let captured: Vec<&str> = source.iter().zip(&tokens).filter(|(wanted, _)| **wanted == "*").map(|(_, token)| *token).collect();
    let made = |token: &str| made_token(token, &captured).unwrap_or_else(|| token.to_owned());
    fits.then(|| transform.destination.split('.').map(made).collect::<Vec<_>>().join("."))
}

/// The token that a template makes; none: the template is a literal token.
fn made_token(token: &str, captured: &[&str]) -> Option<String> {
    let call = token.strip_prefix("{{")?.strip_suffix(")}}")?;
    let (name, arguments) = call.split_once('(')?;
    let numbers: Vec<usize> = arguments.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    let captured = |place: usize| captured.get(place.checked_sub(1)?).copied();
    match (name, numbers.as_slice()) {
        ("wildcard", [place]) => captured(*place).map(str::to_owned),
        ("partition", [partitions, place]) if *partitions > 0 => {
            captured(*place).map(|token| (fnv(token) as usize % partitions).to_string())
        }
        _ => None,
    }
}

/// 32-bit FNV-1a, by which a server chooses partitions.
fn fnv(token: &str) -> u32 {
    token.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
