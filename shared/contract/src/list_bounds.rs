//! Bounds lists by their size, so that each answer fits into a message.

use serde::Serialize;

/// The most bytes of the items of one answer. With its other fields and its headers it fits into a message (1 MiB).
const LIST_BYTES: usize = 900_000;
/// The most bytes of one text of all items, such as their causes.
const TEXTS_BYTES: usize = 256 * 1024;

/// Keeps the first items, as many as fit into one answer; returns how many it removes.
pub fn keep_fitting<T: Serialize>(items: &mut Vec<T>) -> u64 {
    let (all, mut bytes) = (items.len(), 0);
    let fits = |item: &&T| {
        bytes += rmp_serde::to_vec_named(item).map_or(LIST_BYTES + 1, |encoded| encoded.len());
        bytes <= LIST_BYTES
    };
    let fitting = items.iter().take_while(fits).count();
    items.truncate(fitting);
    (all - fitting) as u64
}

/// Shortens a text of each item to an equal share of 256 KiB: 262 bytes each if there are 1,000 items.
pub fn shorten<'a>(texts: impl ExactSizeIterator<Item = &'a mut String>) {
    let share = TEXTS_BYTES / texts.len().max(1);
    for text in texts {
        text.truncate(text.floor_char_boundary(share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_kept_as_far_as_their_encoding_fits() {
        // MessagePack adds 3 bytes to a text of this length.
        let item = "x".repeat(997);
        for (count, kept) in [(0, 0), (1, 1), (900, 900), (901, 900), (2_000, 900)] {
            let mut items = vec![item.clone(); count];
            assert_eq!((keep_fitting(&mut items), items.len()), ((count - kept) as u64, kept));
        }
        assert_eq!(keep_fitting(&mut vec!["x".repeat(LIST_BYTES)]), 1);
    }

    #[test]
    fn texts_are_shortened_only_if_they_are_longer_than_an_equal_share() {
        let shortened = |count: usize, text: &str| {
            let mut texts = vec![text.to_owned(); count];
            shorten(texts.iter_mut());
            texts
        };
        assert_eq!(shortened(0, ""), Vec::<String>::new());
        assert_eq!(shortened(1, &"y".repeat(65_664))[0].len(), 65_664);
        assert!(shortened(1_000, &"y".repeat(65_664)).iter().all(|text| text.len() == 262));
        // A character of two bytes is not split.
        assert_eq!(shortened(1_000, &format!("y{}", "é".repeat(200)))[0].len(), 261);
    }
}
