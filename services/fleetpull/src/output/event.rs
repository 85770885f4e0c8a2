//! An event as a line of text.

use serde_json::Value;

/// One line of a CloudEvent: when, type, reason, node, pod, message.
#[must_use]
pub fn text(event: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let data = &event["data"];
    let pod = data["pod"].as_str().map(|pod| format!("  {pod}")).unwrap_or_default();
    let message: String = word(&data["message"]).chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    format!("{}  {:<7}  {:<17}  {}{pod}  {message}", word(&event["time"]), word(&data["type"]), word(&data["reason"]), word(&data["node"]))
}
