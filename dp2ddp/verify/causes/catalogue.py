"""Every cause that diagnosis knows, in the order of cause and effect: what comes first makes what comes later.

docs/causes.md is written from here: `python -m dp2ddp.verify.causes.page`.
"""

from __future__ import annotations

from dp2ddp.verify.causes.cause import Entry

_WRAP = ("DDP201", "DDP203", "DDP204", "DDP205")
_DATA = ("DDP302", "DDP303", "DDP304", "DDP306", "DDP307")
_OUTSIDE = ("DDP501", "DDP502", "DDP503", "DDP504", "DDP505", "DDP506")

DATA_PARALLEL = (
    Entry(
        "dataparallel-drops-rows",
        "DataParallel itself leaves rows of the batch out.",
        "Under DataParallel the replicas got fewer rows than the script's batch has; the ranks got all of "
        "them.",
        "Not the port's fault: DataParallel cuts arguments with different first sizes into different numbers "
        "of chunks "
        "and drops what is left over. Give all arguments the batch's first size.",
    ),
    Entry(
        "dataparallel-autocast",
        "DataParallel itself runs its replicas in float16 where the script asks for bfloat16.",
        "autocast is asked for bfloat16 in both; under DataParallel float16 is asked for as well, in its threads.",
        "Not the port's fault: a thread knows that autocast is on, and not its dtype. For bfloat16 in both, put "
        "autocast inside of forward; to train as DataParallel did, ask for float16.",
        brings=("other-precision",),
    ),
    Entry(
        "dataparallel-one-row",
        "DataParallel itself fails: a replica's chunk is one row, and BatchNorm needs two.",
        "The original ends with BatchNorm's `Expected more than 1 value per channel when training`.",
        "Not the port's fault: another batch size, drop_last=True, or another number of devices, so that no "
        "chunk is one row.",
    ),
    Entry(
        "dataparallel-keywords",
        "DataParallel itself fails: fewer chunks than devices, and keyword arguments that are no tensors.",
        "The original ends with a TypeError, `missing 1 required positional argument`, in a replica "
        "(pytorch#31460).",
        "Not the port's fault: pass such arguments by position, or give every batch at least a row for each "
        "device.",
    ),
)
START = (
    Entry(
        "initial-state",
        "The ranks begin with other weights than DataParallel did.",
        "Parameters before the first step differ from DataParallel's and are the same on all ranks.",
        "Set the seed at the same place as the original, and draw no random number before the model is made "
        "that the "
        "original did not draw; or load the same checkpoint.",
        ("DDP101", "DDP505"),
    ),
    Entry(
        "other-seed",
        "The weights begin with other random numbers: another seed than the original's, or none.",
        "Parameters before the first step are the same on all ranks, and other draws of the distribution that "
        "DataParallel's are drawn from (their size and shape agree).",
        "No fault by itself, and no two runs with different seeds can be compared. Set one seed in both scripts before "
        "the model is made, or load the same weights; the original may set none.",
        ("DDP101", "DDP505"),
        brings=("initial-state",),
    ),
    Entry(
        "ranks-start-apart",
        "The ranks begin with different weights.",
        "Parameters before the first step differ from rank to rank.",
        "Wrap the model in DistributedDataParallel after its weights are final (it sends rank 0's), or "
        "broadcast every "
        "parameter and buffer from rank 0 before the first step.",
        ("DDP101", *_WRAP),
    ),
    Entry(
        "other-parameters",
        "The optimizer was given other parameters.",
        "One side's optimizer has some of the other's parameters, and no others.",
        "Freeze the same layers before the optimizer is made, and give it the parameters of the same modules.",
        _WRAP,
    ),
    Entry(
        "other-model",
        "The port trains another model.",
        "Parameters that one side has and the other has not, on both sides, or of other shapes.",
        "Build the same model in both: its class, its sizes, the number of classes, what is loaded or replaced.",
        brings=("other-parameters", "initial-state", "other-seed"),
    ),
    Entry(
        "optimizer-made-anew",
        "A new optimizer takes the place of the old one, on one side only.",
        "At this step the parameters are stepped by an optimizer that is new on one side, and known on the other.",
        "Make the optimizer where the original makes it: a new one has forgotten momentum and Adam's averages, and "
        "a scheduler may go on stepping the old one.",
        brings=("optimizer-settings",),
    ),
    Entry(
        "other-optimizer-order",
        "The optimizers step in another order.",
        "At this step another optimizer steps than under DataParallel.",
        "Keep the order of the step calls: the second one sees what the first one changed.",
    ),
    Entry(
        "optimizer-of-others",
        "The optimizer steps parameters that no backward pass reaches.",
        "No parameter of the optimizer has a gradient, while under DataParallel they have.",
        "Make the optimizer from the parameters of the model that is trained, after the last copy, move or "
        "new wrap.",
        _WRAP,
        brings=("no-gradient", "other-reduction"),
    ),
)
BATCHES = (
    Entry(
        "batch-size",
        "The ranks together train on another number of rows in each step.",
        "In a step all ranks together have more or fewer rows than DataParallel: W times as many when every rank "
        "takes the whole batch size.",
        "DataParallel's batch size is that of all devices together: give each rank's loader batch_size // "
        "{W}, and leave "
        "the learning rate as it is.",
        _DATA,
        brings=("missing-rows", "other-order"),
    ),
    Entry(
        "drop-last",
        "The short last batch is missing.",
        "Where DataParallel trained on a short batch, the ranks train on the batch that comes after it.",
        "Take drop_last=True away (DistributedSampler has one, too), and let ranks without rows take part "
        "with zero gradients.",
        _DATA,
    ),
    Entry(
        "same-order-each-epoch",
        "Every epoch has the first one's order.",
        "The ranks' batch is one that they had before, in an earlier epoch; DataParallel's is another.",
        "Call sampler.set_epoch(epoch) at the start of each epoch.",
        _DATA,
        brings=("other-order",),
    ),
    Entry(
        "repeated-rows",
        "Several ranks train on the same rows.",
        "Rows of one step appear on more than one rank, or more often than in DataParallel's batch.",
        "Give every rank rows of its own: a DistributedSampler with the right rank, or its chunk of each "
        "batch; the same "
        "seed for the order on all ranks; no padding of the last batch (DistributedSampler and Accelerate "
        "repeat rows).",
        _DATA,
        brings=("other-order", "missing-samples"),
    ),
    Entry(
        "padded-rows",
        "The short last batch is filled up with rows that were there before.",
        "DataParallel's batch is a short one; the ranks have all its rows, and some of the batch or the epoch a "
        "second time.",
        "Leave the short batch short: cut it as torch.chunk(batch, {W})[rank] does, and let ranks without rows take "
        "part with zero gradients. DistributedSampler pads until all ranks have as many samples, Accelerate until "
        "all batches are full (even_batches).",
        _DATA,
    ),
    Entry(
        "missing-rows",
        "Rows of the batch reach no rank.",
        "The ranks' rows of a step are some of DataParallel's, and not all.",
        "Let the chunks cover the batch: torch.chunk(batch, {W})[rank] does; a slice of len(batch) // {W} "
        "rows loses the rest.",
        _DATA,
    ),
    Entry(
        "other-order",
        "The batches hold other samples: they are shuffled otherwise.",
        "The ranks' rows of a step are samples that DataParallel has in other steps.",
        "Draw the order as the original does, from the same seed and generator on all ranks, and cut each "
        "batch; "
        "DistributedSampler shuffles by a generator of its own (seed + epoch).",
        _DATA,
    ),
    Entry(
        "missing-samples",
        "Some samples reach no rank in the whole run.",
        "Samples that DataParallel takes are on no rank, though the ranks go through theirs again and again.",
        "Give DistributedSampler the data set that the loader has, the right num_replicas, and every rank its own "
        "rank.",
        _DATA,
        brings=("other-order",),
    ),
    Entry(
        "sampler-weights",
        "Samples are drawn by weight (or with replacement) in one version only.",
        "A sample comes again before half of the others have come, on one side; on the other, each comes once an "
        "epoch.",
        "Keep the original's sampler: draw its indices on every rank from the same seed, and cut each batch. "
        "DistributedSampler takes the place of a WeightedRandomSampler, and knows no weights.",
        _DATA,
        brings=("other-order", "other-inputs"),
    ),
    Entry(
        "other-inputs",
        "The same step gets rows with other values.",
        "The model is given rows that DataParallel's never saw: other augmentation, noise or preprocessing.",
        "Draw noise for the whole batch on every rank, from the same seed, and cut it; augment and normalise "
        "as the original.",
        _DATA,
    ),
    Entry(
        "repeated-draws",
        "Augmentation repeats: several ranks or workers draw the same random numbers.",
        "Different samples were loaded with the same random streams on two ranks (or two workers).",
        "Seed workers from torch.initial_seed(), which differs from worker to worker, and give each rank's "
        "loader a seed of its own.",
        _DATA,
    ),
)
MODELS = (
    Entry(
        "evaluation-mode",
        "The model is in evaluation mode where the original trains, or the other way round.",
        "Other forward calls are in training mode than under DataParallel, or BatchNorm counted another number of "
        "batches.",
        "Call model.train() at the start of each epoch and model.eval() before evaluation, on the model that "
        "is called.",
        _WRAP,
        brings=("buffers-of-another-rank", "sync-batchnorm", "batchnorm-rows"),
    ),
    Entry(
        "other-precision",
        "The forward pass is asked for another precision.",
        "autocast is asked for other dtypes than in the original (float64 runs hide their effect).",
        "Keep autocast, its dtype (DataParallel's default is float16) and what it covers.",
        ("DDP401",),
    ),
    Entry(
        "half-by-hand",
        "Numbers go through half precision on one side only.",
        "Casts to float16 or bfloat16 of parameters, gradients or other tensors (float64 runs hide their effect).",
        "Cast where the original does, and nowhere else: gradients in float16 lose what is below 6e-8.",
    ),
    Entry(
        "no-scaler",
        "Gradients are not scaled: the GradScaler is gone.",
        "The loss that backward is called on is DataParallel's divided by its scale, under float16.",
        "Keep the GradScaler on every rank: float16 gradients become zero without it.",
    ),
    Entry(
        "scaler-added",
        "The port scales its losses with a GradScaler, and the original does not.",
        "Losses are multiplied by a scale in the port only, under float16 (float64 runs hide its effect).",
        "Take the GradScaler away, or give the original one too: a scaler skips steps whose gradients overflow, and "
        "belongs to autocast with float16.",
        brings=("clip-scaled",),
    ),
    Entry(
        "sync-batchnorm",
        "BatchNorm normalises over all ranks' rows.",
        "Running statistics are the same on every rank right after a step, and are not DataParallel's: "
        "SyncBatchNorm, or "
        "every rank has the whole batch.",
        "Leave BatchNorm as it is: DataParallel's replicas normalise over their own chunk.",
        _WRAP,
    ),
    Entry(
        "batchnorm-rows",
        "BatchNorm sees other rows together than under DataParallel.",
        "The step's rows are the same, but each rank's are not the chunk that DataParallel gave that replica, or come "
        "in several forwards.",
        "Cut contiguous chunks, torch.chunk(batch, {W})[rank]; DistributedSampler deals rows out one by one. Give the "
        "model the rank's rows of a batch at once: in micro-batches BatchNorm normalises over fewer.",
        (*_WRAP, *_DATA),
    ),
    Entry(
        "chunks-otherwise",
        "The ranks have other rows of the batch than DataParallel's replicas, and what a replica draws (dropout) "
        "falls on other rows.",
        "The rows of all ranks are the same, those of each are not the chunk of its replica; gradients differ.",
        "Cut contiguous chunks, torch.chunk(batch, {W})[rank], and not batch[rank::{W}]; look further if nothing in "
        "the model draws random numbers.",
        _DATA,
    ),
    Entry(
        "buffers-of-another-rank",
        "Buffers (running statistics) are those of other rows than replica 0's.",
        "Gradients and parameters agree; buffers on rank 0, or in what was saved and evaluated, do not.",
        "DataParallel keeps replica 0's buffers: give rank 0 the first chunk, broadcast its buffers before "
        "evaluation, "
        "save from rank 0, and average none.",
        _WRAP,
    ),
    Entry(
        "buffer-of-local-rows",
        "A buffer of the model's own (a running mean, a centre, a queue) is updated from one rank's rows.",
        "A buffer that is none of BatchNorm's differs from DataParallel's, though the rows of all ranks together are "
        "the same.",
        "Under DataParallel the script's own update sees the whole batch: all_reduce the sum and the count (or gather "
        "the outputs) before the buffer is updated, on every rank.",
        _WRAP,
    ),
    Entry(
        "zeros-for-none",
        "Parameters that no row used have no gradient; DataParallel gives them zeros.",
        "A gradient is missing on the ranks where DataParallel's is all zeros: weight decay and momentum act "
        "on zeros.",
        "After backward give every such parameter zeros: p.grad = torch.zeros_like(p).",
        _WRAP,
    ),
    Entry(
        "no-gradient",
        "Parameters get no gradient.",
        "A gradient is missing on the ranks where DataParallel's is not zero.",
        "Look for requires_grad_(False), detach() and no_grad() that the original does not have, and for a "
        "parameter that "
        "was replaced after the wrap or the optimizer was made.",
        _WRAP,
    ),
)
GRADIENTS = (
    Entry(
        "gradients-kept",
        "Gradients of an earlier step are still there.",
        "The gradient is DataParallel's plus that of the step before.",
        "Call optimizer.zero_grad() before each backward pass (once a step under accumulation).",
    ),
    Entry(
        "not-synchronised",
        "Each rank trains on its own gradients.",
        "Gradients differ from rank to rank; their mean (or sum) is DataParallel's.",
        "Call the DistributedDataParallel object and not its .module, keep it alive, leave no_sync() for the "
        "last "
        "backward of a step, one backward a forward; autograd.grad and a second backward are not synchronised.",
        _WRAP,
    ),
    Entry(
        "partly-synchronised",
        "Some parameters are not synchronised.",
        "Gradients of the named parameters differ from rank to rank, all others agree.",
        "Wrap after the last layer was added, replaced or unfrozen; in a loop of all_reduce calls leave no "
        "parameter out.",
        _WRAP,
    ),
    Entry(
        "lost-data",
        "One rank lost what was sent to it.",
        "A gradient is all zeros on one rank only, while the others have DataParallel's.",
        "A collective loses data: GPUs without working peer-to-peer transfers do (NCCL_P2P_DISABLE=1 shows "
        "it).",
    ),
    Entry(
        "sum-for-mean",
        "Gradients are {W} times too large: a sum over ranks where DataParallel has the mean.",
        "Every gradient is W times DataParallel's, to the last digits; clipping may hide it.",
        "Divide by the number of ranks once: after all_reduce, or in the loss; DistributedDataParallel has "
        "done so already.",
        _WRAP,
        brings=("pairs-across-ranks", "local-counts"),
    ),
    Entry(
        "mean-for-sum",
        "Gradients are {W} times too small: averaged over ranks where DataParallel adds.",
        "Every gradient is 1/W of DataParallel's, to the last digits.",
        "DistributedDataParallel divides by the number of ranks: multiply a loss that is already over the "
        "whole batch (a sum, "
        "a global mean, a loss of gathered outputs) by {W} before backward.",
        _WRAP,
        brings=("pairs-across-ranks", "local-counts"),
    ),
    Entry(
        "accumulation-count",
        "The loss is not divided by the number of accumulated batches, or twice.",
        "Every gradient is K (or 1/K) times DataParallel's, where K backward passes make a step.",
        "Divide each loss by the number of backward passes in a step, once.",
    ),
    Entry(
        "part-of-accumulation",
        "Only the last of the accumulated batches counts.",
        "Several backward passes before the step, and the gradient is not DataParallel's, though rows and "
        "losses are.",
        "zero_grad() belongs behind optimizer.step(), not into every accumulated batch.",
    ),
    Entry(
        "mean-of-means",
        "The mean of the ranks' means is taken, and the ranks have different numbers of rows.",
        "Losses of the ranks weighted by their rows give DataParallel's loss, their plain mean does not.",
        "Weight each rank's loss by its rows: loss * rows_of_this_rank * {W} / rows_of_all, or cut even "
        "chunks.",
        _DATA,
    ),
    Entry(
        "local-counts",
        "The loss is divided by what the rank counts, not by what all ranks count.",
        "Same rows, even chunks; DataParallel's loss is a mean of the ranks' losses with other weights than "
        "1/W.",
        "Sum the numerator, all_reduce the count (words, pixels, class weights), divide, and multiply by {W}.",
    ),
    Entry(
        "between-passes",
        "What happens between two backward passes of a step (SAM's ascent, an inner step) differs.",
        "Several backward passes before a step; the losses of the first agree, those of the last do not.",
        "Whatever changes weights between the passes needs the gradients of all ranks: no no_sync() for a pass whose "
        "gradients are used before the next one.",
        _WRAP,
    ),
    Entry(
        "pairs-across-ranks",
        "The loss compares rows with each other, and sees only those of its rank.",
        "Same rows; every rank's loss is smaller than DataParallel's (fewer rows to be told from).",
        "Gather the outputs of all ranks (with gradients for the own part), compute the whole loss on each, "
        "times {W}.",
        _WRAP,
    ),
    Entry(
        "gradient-scale",
        "Gradients are DataParallel's, multiplied by one number.",
        "Every gradient is c times DataParallel's, to the last digits, where c is none of W, 1/W and K.",
        "Look for a factor in the loss: a count of this rank or of rank 0 alone, a weight, a division that "
        "is there twice.",
        brings=("pairs-across-ranks", "local-counts"),
    ),
    Entry(
        "other-reduction",
        "The gradients of the ranks are put together by something else than a mean.",
        "Same rows, same weights, losses whose mean is DataParallel's; the gradients agree among ranks and "
        "are not the mean.",
        "Use all_reduce with ReduceOp.SUM and divide by the number of ranks (or ReduceOp.AVG): a broadcast "
        "keeps one rank's "
        "gradients, MAX the largest.",
    ),
)
STEPS = (
    Entry(
        "clip-before-sync",
        "Gradients are clipped on each rank before they are synchronised.",
        "Before clipping the gradients differ from rank to rank, or the norms that clip_grad_norm_ returned "
        "do.",
        "Clip after the gradients of all ranks are averaged: behind backward() of a DistributedDataParallel, "
        "behind the last "
        "all_reduce.",
    ),
    Entry(
        "clip-scaled",
        "Scaled gradients are clipped.",
        "The norms that clip_grad_norm_ returned are a power of two times DataParallel's.",
        "Call scaler.unscale_(optimizer) before clip_grad_norm_.",
    ),
    Entry(
        "clipping",
        "Gradients are clipped otherwise.",
        "Gradients before clipping are the same, behind it they are not.",
        "Give clip_grad_norm_ the same parameters and the same limit as the original, on every rank.",
    ),
    Entry(
        "learning-rate-times-world",
        "The learning rate is multiplied or divided by {W}.",
        "Learning rates of this step: W, 1/W or the square root of W times DataParallel's.",
        "Leave the learning rate as it is: the batch of all ranks together is DataParallel's.",
        brings=("learning-rate",),
    ),
    Entry(
        "schedule-times-world",
        "The schedule runs {W} times as fast.",
        "Learning rates are those that DataParallel has after W times as many steps of its schedule.",
        "Step the scheduler once for each optimizer step (or epoch) of all ranks, and give it DataParallel's "
        "lengths; "
        "Accelerate's prepared scheduler steps W times.",
        brings=("schedule-times", "learning-rate"),
    ),
    Entry(
        "schedule-times",
        "The scheduler is stepped another number of times, or at other places.",
        "Between two optimizer steps scheduler.step is called more or less often than under DataParallel.",
        "Step the scheduler where the original does: once a step, or once an epoch, not in every batch.",
        brings=("learning-rate",),
    ),
    Entry(
        "learning-rate",
        "The learning rate is another.",
        "Learning rates of this step are not DataParallel's, nor a simple multiple of them.",
        "Look at lr, at the scheduler's lengths (len(loader) is another on a rank) and at whether it is "
        "stepped.",
    ),
    Entry(
        "learning-rates-apart",
        "The ranks have different learning rates from the start.",
        "Learning rates of the first step differ from rank to rank.",
        "Give every rank's optimizer the same lr, in every parameter group: no part of it may come from the rank, or "
        "from what one rank counts.",
        brings=("ranks-part", "learning-rate"),
    ),
    Entry(
        "local-decision",
        "The ranks decide differently.",
        "Learning rates, skipped steps or the number of steps differ from rank to rank.",
        "Decide from a number that is the same on all ranks: reduce the metric first, or let rank 0 decide "
        "and broadcast it.",
        ("DDP506", *_OUTSIDE),
    ),
    Entry(
        "optimizer-settings",
        "The optimizer has other settings.",
        "Gradients and learning rates are the same up to here; parameters after the step, or what the optimizer "
        "keeps, are not.",
        "Compare the optimizer's class, weight_decay, momentum, betas, eps and its parameter groups.",
    ),
    Entry(
        "ranks-part",
        "Weights of one rank were changed between steps.",
        "Ranks agreed before; their parameters part without gradients that explain it.",
        "Load, reset or average weights on all ranks alike, or broadcast them afterwards: "
        "DistributedDataParallel sends them once.",
        ("DDP505",),
    ),
    Entry(
        "skipped-steps",
        "Other steps are skipped.",
        "GradScaler.step left out more or fewer steps than under DataParallel.",
        "Scale, unscale and update on every rank as the original does; gradients must be synchronised before "
        "the scaler looks "
        "for infinities.",
    ),
    Entry(
        "fewer-steps",
        "The port takes fewer optimizer steps.",
        "All steps up to the end agree; then the ranks stop.",
        "Look at the number of epochs, at len(loader), at decisions to stop early.",
    ),
    Entry(
        "more-steps",
        "The port takes more optimizer steps.",
        "All steps of DataParallel agree; then the ranks go on. Or a step comes before its batches are "
        "complete.",
        "Look at the number of epochs, at the accumulation count, at decisions to stop early.",
    ),
)
ENDING = (
    Entry(
        "moved-by-hand",
        "Weights that no optimizer steps are not DataParallel's: an update by hand, an average, a target network.",
        "All optimizer steps agree; parameters that none of them touches differ when the script ends.",
        "An average (EMA): after optimizer.step(), once a step, with the original's decay. By hand: from gradients "
        "that all ranks share, with the original's factor.",
        _WRAP,
    ),
    Entry(
        "changed-after-training",
        "Weights are changed behind the last optimizer step, on one side only or otherwise.",
        "All optimizer steps agree; their parameters differ when the script ends.",
        "Do behind training what the original does: averaged weights, a checkpoint loaded again, pruning.",
        _WRAP,
    ),
)
FORWARD = (
    Entry(
        "other-random-numbers",
        "The model draws other random numbers: dropout, noise in the forward pass.",
        "Same weights, same rows, other losses; with aligned random numbers both train the same.",
        "Seed every rank's device as the original does (torch.manual_seed seeds all devices alike), and draw "
        "nothing more on it.",
        ("DDP105", "DDP302", *_WRAP),
    ),
    Entry(
        "other-computation",
        "Model or loss compute something else.",
        "Same weights, same rows, no random number that explains it; other losses or gradients.",
        "Compare the forward pass and the loss of both scripts line by line.",
        _WRAP,
    ),
)
OUTSIDE = (
    Entry(
        "every-rank-prints",
        "Every rank prints.",
        "Lines on stdout of ranks other than 0.",
        "Print on rank 0 only.",
        _OUTSIDE,
    ),
    Entry(
        "another-rank-prints",
        "Another rank than 0 prints what DataParallel prints, and rank 0 does not.",
        "Rank 0 lacks lines of DataParallel; another rank has lines.",
        "Print, log and save on rank 0: it has the first chunk's rows, and so replica 0's buffers.",
        _OUTSIDE,
        brings=("other-output",),
    ),
    Entry(
        "doubled-lines",
        "Lines of a log are there several times.",
        "A text file, or stdout, holds lines of DataParallel's again, or W times as many.",
        "Write logs on rank 0 only; files of several ranks tear.",
        _OUTSIDE,
    ),
    Entry(
        "every-rank-writes",
        "Several ranks write the same file.",
        "A file that several ranks began anew, though what is left in it is DataParallel's.",
        "Save on rank 0 only: two that write at once leave a torn file, on a shared disk sooner than here.",
        _OUTSIDE,
    ),
    Entry(
        "doubled-files",
        "Ranks leave files of their own.",
        "Files with other names than DataParallel's.",
        "Save on rank 0 only, under the original's name.",
        _OUTSIDE,
    ),
    Entry(
        "other-keys",
        "A checkpoint has other keys.",
        "The saved dictionaries' keys differ.",
        "Save net.state_dict() where the original does (its keys begin with `module.`), "
        "net.module.state_dict() where it does.",
        ("DDP502", "DDP505"),
    ),
    Entry(
        "weights-of-another-step",
        "Saved weights are those of another step, or an average (EMA, SWA) of others.",
        "Training is the same; a file holds a tensor under a parameter's name, with other numbers.",
        "Save where the original saves, and update an average where the original does: after optimizer.step(), once "
        "a step, on the rank that saves it as well.",
        ("DDP502", "DDP505"),
    ),
    Entry(
        "local-numbers",
        "What is printed or saved is one rank's number, not that of all.",
        "Training is the same; numbers in lines or files are not.",
        "Reduce sums and counts over all ranks before dividing, printing and deciding: a metric of this "
        "rank's rows is not "
        "the metric.",
        _OUTSIDE,
    ),
    Entry(
        "other-output",
        "What is printed or left behind is something else.",
        "Training is the same; lines, files or the exit code are not.",
        "Look at the line or file that is named.",
        _OUTSIDE,
    ),
)

CATALOGUE: dict[str, Entry] = {
    entry.code: entry
    for family in (DATA_PARALLEL, START, BATCHES, MODELS, GRADIENTS, STEPS, ENDING, FORWARD, OUTSIDE)
    for entry in family
}
