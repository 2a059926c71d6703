//! Normalizes raw scores to 0 to 100.

use scheduler_framework::MAX_NODE_SCORE;

/// Scales so that the largest becomes 100; `reverse` maps 100 to 0.
pub(crate) fn default_normalize_scores(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().max().copied().unwrap_or(0);
    for score in scores {
        *score = match most {
            // No node has a soft taint, for instance: all are equally good.
            0 if reverse => MAX_NODE_SCORE,
            0 => 0,
            most => {
                let scaled = *score * MAX_NODE_SCORE / most;
                if reverse {
                    MAX_NODE_SCORE - scaled
                } else {
                    scaled
                }
            }
        };
    }
}
