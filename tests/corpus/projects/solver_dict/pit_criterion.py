def masked_mse(estimate, source, lengths):
    mask = (lengths.new_ones(len(lengths), estimate.size(1)).cumsum(1) <= lengths[:, None]).to(estimate.dtype)
    return ((estimate - source) ** 2 * mask).sum() / mask.sum()
