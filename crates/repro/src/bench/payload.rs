//! Payload bytes of a content: the same for the same content, different for different ones, and incompressible.

use crate::dedis::load::ContentId;
use sim::random::mix;

/// Fills a block with the bytes of a content.
pub fn fill(content: ContentId, block: &mut [u8]) {
    let seed = mix(content);
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        // The content itself is at the front, so that no two are the same.
        let value = if at == 0 { content } else { mix(seed ^ at as u64) };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Returns true if a block has the bytes of a content; 0 is a block that was never written, and may hold anything.
pub fn is(content: ContentId, block: &[u8], scratch: &mut Vec<u8>) -> bool {
    if content == 0 {
        return true;
    }
    scratch.resize(block.len(), 0);
    fill(content, scratch);
    scratch.as_slice() == block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_and_stay_the_same() {
        let block = |content| {
            let mut block = vec![0; 4096];
            fill(content, &mut block);
            block
        };
        assert_eq!(block(5), block(5));
        assert_ne!(block(5), block(6));
        let mut scratch = Vec::new();
        assert!(is(5, &block(5), &mut scratch) && !is(5, &block(6), &mut scratch) && is(0, &block(6), &mut scratch));
    }
}
