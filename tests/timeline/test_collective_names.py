"""A collective has one name, however a library calls it."""

import pytest

from lib_dlhpc.timeline.collective_names import collective_name


@pytest.mark.parametrize(
    ("name", "is_called"),
    [
        ("allreduce", "allreduce"),
        ("all_reduce", "allreduce"),
        ("all-reduce.6", "allreduce"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "allreduce"),
        ("MPI_Allreduce", "allreduce"),
        ("_allgather_base", "all-gather"),
        ("reduce_scatter_tensor_coalesced", "reduce-scatter"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce-scatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send and receive"),
        ("all_to_allv", "all-to-all"),
        ("ragged-all-to-all.1", "all-to-all"),
        ("collective-permute-start.2", "permute"),
        ("Bcast", "broadcast"),
        ("CollectiveReduceV2", "allreduce"),
        ("CollectiveReduceScatterV2", "reduce-scatter"),
        ("CollectiveGatherV2", "all-gather"),
        ("CollectiveBcastSendV2", "broadcast"),
        ("CollectiveAllToAllV3", "all-to-all"),
        ("CollectiveInitializeCommunicator", "communication"),
        ("collective-broadcast.3", "broadcast"),
        ("HorovodGroupedAllreduce", "allreduce"),
        ("HorovodReducescatter", "reduce-scatter"),
        ("NcclAllReduce", "allreduce"),
        ("bucket 3", "communication"),
    ],
)
def test_libraries_names_are_one(name, is_called):
    assert collective_name(name) == is_called
