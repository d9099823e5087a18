"""The functions of torch.distributed that ranks call together, and those of two ranks."""

OF_TENSORS = """
    all_gather all_gather_into_tensor all_gather_single all_reduce all_to_all all_to_all_single broadcast gather
    gather_into_tensor gather_single reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
"""
OF_OBJECTS = "all_gather_object broadcast_object_list gather_object scatter_object_list"
BETWEEN_TWO = "send recv isend irecv batch_isend_irecv send_object_list recv_object_list"
_OTHERS = "all_gather_coalesced all_reduce_coalesced barrier monitored_barrier"
COLLECTIVES = f"{OF_TENSORS} {OF_OBJECTS} {BETWEEN_TWO} {_OTHERS}".split()
