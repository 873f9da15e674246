//! Ranges of blocks: the cursor that hands them out, the leased jobs that read them, the ledger of what is covered.
//!
//! A range exists from the moment its job document exists: inserting the document *is* claiming the range, and its `_id` (source
//! and first block) allows that for one worker only. The cursor moves afterwards. A crash in between leaves a job that says how
//! far the cursor has to move, and the next worker moves it. So no crash loses a range and no two ranges overlap.
//!
//! Finished jobs are the ledger: boundary hashes, times and counts. "Complete to block N" is the end of the unbroken run of
//! finished ranges from the start block on, each linked by hash to the one before.

pub(crate) mod domain;
mod ledger;
mod repo;

pub(crate) use domain::{Boundary, Cursor, Job, Mode, Status};
pub(crate) use ledger::{Advance, Ledger};
pub(crate) use repo::{ClaimOutcome, Owner, RangeRepo, Release, Reorganisation, UndoRepo};
