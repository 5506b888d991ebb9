/*
 * The ioctl surface of /dev/neuron*, stated a second time: structs with C types, laid out by the
 * compiler, and words built by the kernel's macros. The test beside this file compiles and runs it
 * and compares what it prints with the table of the crate. It is kept by hand, and must not be
 * generated from that table: then it would agree with any mistake there.
 *
 * Each line of output is one of
 *
 *     struct NAME size
 *     field NAME offset size              (of the struct above it)
 *     entry NAME offset count             (what follows that struct; count 0 is any)
 *     word NAME number argument           (a struct, `-` for none, `?` for one that is not covered)
 *
 * 64-bit only, as the ABI is. Older commands were declared with a pointer to their struct, so that
 * the size in their words is that of a pointer.
 */
#include <linux/ioctl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;

/* Start-up, identity, versions, resets. */

struct DeviceReady { u8 ready; };

struct DeviceInfo {
	u32 architecture, revision, connected_count, connected[8];
	u64 bar_address[2], bar_size[2];
};

struct DeviceAppPid { i32 pid; };

struct AppInfo {
	i32 pid;
	u8 nc_lock_map;
	u8 uuid[4][32];
	u64 host_mem_size, device_mem_size;
};

struct DeviceGetAllAppsInfo {
	u16 flags;
	u32 capacity, size;
	struct AppInfo entries[];
};

struct CompatibleVersion { u32 max, min; };

struct DeviceBasicInfo { u32 architecture, revision; };

struct DriverInfo {
	u32 architecture, revision, version, size;
	u64 feature_flags1;
};

struct DeviceBdf {
	u32 bus;
	u8 slot, func;
};

struct DeviceBdfExt {
	u32 nd_index, domain, bus;
	u8 slot, func;
};

struct DeviceResetStatus { u8 done; };

struct NcReset { u32 nc_map, request_id; };

struct NcResetReady {
	u32 request_id;
	i32 result;
};

struct HostDeviceId { u32 device_id; };

struct HostDeviceIdToRidMap { u32 count, rids[64]; };

struct Printk {
	char *buffer;
	u32 size;
};

/* Claims, model locks, datastore. */

struct Crwl {
	u32 nc_id;
	u8 uuid[32];
};

struct NcMap {
	u32 nc_count, start_nc, end_nc, max_nc_available;
	u64 bitmap;
};

struct NcMapExt {
	u32 nc_count, start_nc, end_nc, max_nc_available;
	u64 bitmap[512 / 64];
};

struct CinitSetState { u32 nc_id, state, new_state; };

struct NcModelStartedCount {
	u32 nc_id;
	u64 started_count;
};

struct NeuronDs {
	i32 pid;
	u64 mmap_offset;
	u32 size;
};

/* Memory. */

struct MemAlloc {
	u64 size;
	u32 host_memory, dram_channel, dram_region, nc_id;
	u64 *mem_handle;
};

struct MemAllocV2 {
	u64 size, align;
	u32 host_memory, dram_channel, dram_region, nc_id;
	u64 *mem_handle;
};

struct MemAllocV2Mt {
	u64 size, align;
	u32 host_memory, dram_channel, dram_region, nc_id, mem_type;
	u64 *mem_handle;
};

struct MemAllocV2Mt64 {
	u64 size, align;
	u32 host_memory, dram_channel, dram_region, nc_id, mem_type;
	u64 *mem_handle;
	u32 pad;
};

struct MemFree { u64 mem_handle; };

struct MemGetPa {
	u64 mem_handle;
	u64 *pa;
};

struct MemGetInfo {
	u64 mem_handle;
	u64 *mmap_offset, *pa;
};

struct MemGetExtendedInfo {
	u64 mem_handle;
	u32 version, host_memory;
	u64 mmap_offset, pa, pid, size;
};

struct MemMcGetInfo { u64 pa, mmap_offset, size; };

struct MemMcGetInfoV2 { u64 pa, mmap_offset, size, mem_handle; };

struct ResourceMmapInfo {
	u32 block, block_id, resource;
	u64 offset, size;
};

struct DmabufFd {
	u64 va, size;
	i32 *fd;
};

struct MemChunkInfo {
	u64 pa, size;
	u32 mem_type;
};

struct DumpMemChunks {
	u32 hbm_index, num_entries_in, num_entries_out;
	struct MemChunkInfo *data;
};

struct GetVaPlacement {
	u64 va;
	i32 device, index;
};

struct HbmScrubStart { u32 nc_id, hbm_index, axi_port, init_val; };

struct HbmScrubWait { u32 nc_id, hbm_index; };

/* Copies and fills. */

struct MemCopy {
	u64 src, dst;
	u32 size, src_offset, dst_offset;
};

struct MemCopy64 { u64 src, dst, size, src_offset, dst_offset; };

struct MemCopyAsync {
	u64 src, dst;
	u32 size, src_offset, dst_offset;
	u64 host_prefetch_addr;
	i32 pwait, wait;
};

struct MemCopyAsync64 {
	u64 src, dst, size, src_offset, dst_offset, host_prefetch_addr;
	i32 pwait, wait;
};

struct MemCopyAsyncWait {
	u64 src, dst;
	u32 pwait;
};

struct Memset {
	u64 mem_handle, offset;
	u32 value, size;
};

struct Memset64 {
	u64 mem_handle, offset;
	u32 value;
	u64 size;
};

struct MemBufCopy {
	u64 mem_handle;
	void *buffer;
	u32 size, offset, copy_to_mem_handle;
};

struct MemBufCopy64 {
	u64 mem_handle;
	void *buffer;
	u64 size, offset;
	u32 copy_to_mem_handle;
};

struct MemBufZerocopy64 {
	u64 mem_handle;
	void *buffer;
	u64 size, offset;
	u32 is_copy_to_device, bar4_wr_threshold;
	i32 h2t_qid;
	u32 unused;
};

struct ZerocopyOp {
	u64 offset, size;
	void *buffer;
};

struct ZerocopyBatch {
	u64 mem_handle, mem_handle_offset;
	struct ZerocopyOp *ops_ptr;
	u32 num_ops;
	u16 bar4_wr_threshold, flags;
	void *context;
};

struct MemBufZerocopy64Batches {
	u64 sequence_num;
	struct ZerocopyBatch *batches;
	u32 num_batches;
	u16 is_copy_to_device;
	i32 h2t_qid;
	u16 flags;
};

struct ProgramEngine {
	u64 dst;
	void *buffer;
	u32 size, offset;
};

struct ProgramEngineNc {
	u32 nc_id;
	u64 dst;
	void *buffer;
	u32 size, offset;
};

struct ProgramEngineNc64 {
	u32 nc_id;
	u64 dst;
	void *buffer;
	u64 size, offset;
};

/* DMA. */

struct DmaEngSetState { u32 eng, state; };

struct DmaEngState { u32 revision_id, max_queues, num_queues, tx_state, rx_state; };

struct DmaEngGetState {
	u32 eng;
	struct DmaEngState *state;
};

struct DmaQueueInit {
	u32 eng, qid, tx_desc_count, rx_desc_count;
	u64 tx_handle, rx_handle, rxc_handle;
	u32 axi_port;
};

struct DmaQueueInitBatch {
	u32 count;
	struct DmaQueueInit entries[256];
};

struct DmaQueueRelease { u32 eng, qid; };

struct DmaQueueCopyStart { u32 eng, qid, tx_desc_count, rx_desc_count; };

struct DmaAckCompleted { u32 eng, qid, count; };

struct DmaQueueState {
	u32 hw_status, sw_status;
	u64 base_addr;
	u32 length, head, tail;
	u64 compl_base_addr;
	u32 compl_head;
};

struct DmaQueueGetState {
	u32 eng, qid;
	struct DmaQueueState *tx, *rx;
};

struct DmaCopyDescriptors {
	u64 mem_handle;
	void *buffer;
	u32 num_descs, offset, queue_type;
};

struct DmaCopyDescriptors64 {
	u64 mem_handle;
	void *buffer;
	u32 num_descs;
	u64 offset;
	u32 queue_type;
};

struct DmaDescriptorCopyout {
	u32 eng, qid, queue_type, start_index, count;
	void *buffer;
};

struct H2tDmaAllocQueues {
	u16 size, nc_id, copy_cnt, service_cnt;
	u32 copy_bmap, service_bmap, copy_default_queue;
};

struct H2tDmaFreeQueues {
	u16 size;
	u8 nc_id, fill;
	u32 queue_bmap;
};

struct ComplQueueRange {
	u64 mmap_offset;
	u32 mmap_size;
};

struct GetAsyncH2tDmaComplQueues {
	u32 nc_id, qid_bitmap;
	struct ComplQueueRange queues[16];
};

/* `S` opens a struct by that name as `T`; `F` and `E` are its fields and what follows it. */
#define S(name, fields) \
	do { \
		typedef struct name T; \
		printf("struct %s %zu\n", #name, sizeof(T)); \
		fields \
	} while (0)
#define F(field) \
	printf("field %s %zu %zu\n", #field, offsetof(T, field), sizeof(((T *)NULL)->field));
#define E(entry, count) printf("entry %s %zu %d\n", #entry, offsetof(T, entries), count);

static void structs(void)
{
	S(DeviceReady, F(ready));
	S(DeviceInfo, F(architecture) F(revision) F(connected_count) F(connected) F(bar_address)
		F(bar_size));
	S(DeviceAppPid, F(pid));
	S(AppInfo, F(pid) F(nc_lock_map) F(uuid) F(host_mem_size) F(device_mem_size));
	S(DeviceGetAllAppsInfo, F(flags) F(capacity) F(size) E(AppInfo, 0));
	S(CompatibleVersion, F(max) F(min));
	S(DeviceBasicInfo, F(architecture) F(revision));
	S(DriverInfo, F(architecture) F(revision) F(version) F(size) F(feature_flags1));
	S(DeviceBdf, F(bus) F(slot) F(func));
	S(DeviceBdfExt, F(nd_index) F(domain) F(bus) F(slot) F(func));
	S(DeviceResetStatus, F(done));
	S(NcReset, F(nc_map) F(request_id));
	S(NcResetReady, F(request_id) F(result));
	S(HostDeviceId, F(device_id));
	S(HostDeviceIdToRidMap, F(count) F(rids));
	S(Printk, F(buffer) F(size));

	S(Crwl, F(nc_id) F(uuid));
	S(NcMap, F(nc_count) F(start_nc) F(end_nc) F(max_nc_available) F(bitmap));
	S(NcMapExt, F(nc_count) F(start_nc) F(end_nc) F(max_nc_available) F(bitmap));
	S(CinitSetState, F(nc_id) F(state) F(new_state));
	S(NcModelStartedCount, F(nc_id) F(started_count));
	S(NeuronDs, F(pid) F(mmap_offset) F(size));

	S(MemAlloc, F(size) F(host_memory) F(dram_channel) F(dram_region) F(nc_id) F(mem_handle));
	S(MemAllocV2, F(size) F(align) F(host_memory) F(dram_channel) F(dram_region) F(nc_id)
		F(mem_handle));
	S(MemAllocV2Mt, F(size) F(align) F(host_memory) F(dram_channel) F(dram_region) F(nc_id)
		F(mem_type) F(mem_handle));
	S(MemAllocV2Mt64, F(size) F(align) F(host_memory) F(dram_channel) F(dram_region) F(nc_id)
		F(mem_type) F(mem_handle) F(pad));
	S(MemFree, F(mem_handle));
	S(MemGetPa, F(mem_handle) F(pa));
	S(MemGetInfo, F(mem_handle) F(mmap_offset) F(pa));
	S(MemGetExtendedInfo, F(mem_handle) F(version) F(host_memory) F(mmap_offset) F(pa) F(pid)
		F(size));
	S(MemMcGetInfo, F(pa) F(mmap_offset) F(size));
	S(MemMcGetInfoV2, F(pa) F(mmap_offset) F(size) F(mem_handle));
	S(ResourceMmapInfo, F(block) F(block_id) F(resource) F(offset) F(size));
	S(DmabufFd, F(va) F(size) F(fd));
	S(MemChunkInfo, F(pa) F(size) F(mem_type));
	S(DumpMemChunks, F(hbm_index) F(num_entries_in) F(num_entries_out) F(data));
	S(GetVaPlacement, F(va) F(device) F(index));
	S(HbmScrubStart, F(nc_id) F(hbm_index) F(axi_port) F(init_val));
	S(HbmScrubWait, F(nc_id) F(hbm_index));

	S(MemCopy, F(src) F(dst) F(size) F(src_offset) F(dst_offset));
	S(MemCopy64, F(src) F(dst) F(size) F(src_offset) F(dst_offset));
	S(MemCopyAsync, F(src) F(dst) F(size) F(src_offset) F(dst_offset) F(host_prefetch_addr)
		F(pwait) F(wait));
	S(MemCopyAsync64, F(src) F(dst) F(size) F(src_offset) F(dst_offset) F(host_prefetch_addr)
		F(pwait) F(wait));
	S(MemCopyAsyncWait, F(src) F(dst) F(pwait));
	S(Memset, F(mem_handle) F(offset) F(value) F(size));
	S(Memset64, F(mem_handle) F(offset) F(value) F(size));
	S(MemBufCopy, F(mem_handle) F(buffer) F(size) F(offset) F(copy_to_mem_handle));
	S(MemBufCopy64, F(mem_handle) F(buffer) F(size) F(offset) F(copy_to_mem_handle));
	S(MemBufZerocopy64, F(mem_handle) F(buffer) F(size) F(offset) F(is_copy_to_device)
		F(bar4_wr_threshold) F(h2t_qid) F(unused));
	S(ZerocopyOp, F(offset) F(size) F(buffer));
	S(ZerocopyBatch, F(mem_handle) F(mem_handle_offset) F(ops_ptr) F(num_ops)
		F(bar4_wr_threshold) F(flags) F(context));
	S(MemBufZerocopy64Batches, F(sequence_num) F(batches) F(num_batches) F(is_copy_to_device)
		F(h2t_qid) F(flags));
	S(ProgramEngine, F(dst) F(buffer) F(size) F(offset));
	S(ProgramEngineNc, F(nc_id) F(dst) F(buffer) F(size) F(offset));
	S(ProgramEngineNc64, F(nc_id) F(dst) F(buffer) F(size) F(offset));

	S(DmaEngSetState, F(eng) F(state));
	S(DmaEngState, F(revision_id) F(max_queues) F(num_queues) F(tx_state) F(rx_state));
	S(DmaEngGetState, F(eng) F(state));
	S(DmaQueueInit, F(eng) F(qid) F(tx_desc_count) F(rx_desc_count) F(tx_handle) F(rx_handle)
		F(rxc_handle) F(axi_port));
	S(DmaQueueInitBatch, F(count) E(DmaQueueInit, 256));
	S(DmaQueueRelease, F(eng) F(qid));
	S(DmaQueueCopyStart, F(eng) F(qid) F(tx_desc_count) F(rx_desc_count));
	S(DmaAckCompleted, F(eng) F(qid) F(count));
	S(DmaQueueState, F(hw_status) F(sw_status) F(base_addr) F(length) F(head) F(tail)
		F(compl_base_addr) F(compl_head));
	S(DmaQueueGetState, F(eng) F(qid) F(tx) F(rx));
	S(DmaCopyDescriptors, F(mem_handle) F(buffer) F(num_descs) F(offset) F(queue_type));
	S(DmaCopyDescriptors64, F(mem_handle) F(buffer) F(num_descs) F(offset) F(queue_type));
	S(DmaDescriptorCopyout, F(eng) F(qid) F(queue_type) F(start_index) F(count) F(buffer));
	S(H2tDmaAllocQueues, F(size) F(nc_id) F(copy_cnt) F(service_cnt) F(copy_bmap)
		F(service_bmap) F(copy_default_queue));
	S(H2tDmaFreeQueues, F(size) F(nc_id) F(fill) F(queue_bmap));
	S(ComplQueueRange, F(mmap_offset) F(mmap_size));
	S(GetAsyncH2tDmaComplQueues, F(nc_id) F(qid_bitmap) F(queues));
}

#define N 'N'
/* A word carries the size of the struct itself, or that of a pointer to it. */
#define W(name, word, argument) \
	printf("word %s %#010lx %s\n", #name, (unsigned long)(word), argument)
#define BY_SIZE(name, dir, nr, type) W(name, dir(N, nr, struct type), #type)
#define BY_POINTER(name, dir, nr, type) W(name, dir(N, nr, struct type *), #type)
/* Structs that are not covered: all that is known of them is the size in the word. */
#define UNKNOWN(name, dir, nr, size) W(name, dir(N, nr, char[size]), "?")

static void words(void)
{
	W(DEVICE_RESET, _IO(N, 1), "-");
	BY_SIZE(DEVICE_READY, _IOR, 2, DeviceReady);
	BY_POINTER(DEVICE_INFO, _IOR, 3, DeviceInfo);
	W(DEVICE_INIT, _IOR(N, 4, void *), "-");
	W(DEVICE_RELEASE, _IO(N, 5), "-");
	BY_SIZE(DEVICE_APP_PID, _IOR, 6, DeviceAppPid);
	BY_POINTER(DEVICE_GET_ALL_APPS_INFO, _IOR, 7, DeviceGetAllAppsInfo);
	BY_POINTER(COMPATIBLE_VERSION, _IOW, 93, CompatibleVersion);
	BY_POINTER(DEVICE_BASIC_INFO, _IOW, 100, DeviceBasicInfo);
	BY_POINTER(DEVICE_BDF, _IOR, 101, DeviceBdf);
	BY_POINTER(DEVICE_BDF_EXT, _IOR, 106, DeviceBdfExt);
	BY_SIZE(DEVICE_RESET_STATUS, _IOR, 106, DeviceResetStatus);
	BY_POINTER(NC_RESET, _IOR, 103, NcReset);
	BY_POINTER(NC_RESET_READY, _IOR, 104, NcResetReady);
	BY_SIZE(DRIVER_INFO_GET, _IOR, 110, DriverInfo);
	BY_SIZE(DRIVER_INFO_SET, _IOW, 110, DriverInfo);
	BY_SIZE(HOST_DEVICE_ID, _IOR, 114, HostDeviceId);
	BY_SIZE(HOST_DEVICE_ID_TO_RID_MAP, _IOWR, 115, HostDeviceIdToRidMap);
	UNKNOWN(GET_LOGICAL_TO_PHYSICAL_NC_MAP, _IOWR, 120, 16);
	BY_SIZE(PRINTK, _IOW, 113, Printk);
	UNKNOWN(POD_INFO, _IOWR, 121, 260);
	UNKNOWN(POD_STATUS, _IOWR, 122, 268);
	UNKNOWN(POD_STATUS_V2, _IOWR, 122, 276);
	UNKNOWN(POD_CTRL, _IOWR, 123, 16);
	UNKNOWN(POD_CTRL_V2, _IOWR, 123, 20);

	BY_POINTER(CRWL_READER_ENTER, _IOW, 81, Crwl);
	BY_POINTER(CRWL_READER_EXIT, _IOW, 82, Crwl);
	BY_POINTER(CRWL_WRITER_ENTER, _IOW, 83, Crwl);
	BY_POINTER(CRWL_WRITER_DOWNGRADE, _IOW, 84, Crwl);
	BY_POINTER(CRWL_NC_RANGE_MARK, _IOW, 85, NcMap);
	BY_SIZE(CRWL_NC_RANGE_MARK_EXT0, _IOWR, 85, NcMapExt);
	BY_POINTER(CRWL_NC_RANGE_UNMARK, _IOW, 86, NcMap);
	BY_SIZE(CRWL_NC_RANGE_UNMARK_EXT0, _IOW, 86, NcMapExt);
	BY_POINTER(CINIT_SET_STATE, _IOW, 91, CinitSetState);
	BY_POINTER(NC_MODEL_STARTED_COUNT, _IOW, 92, NcModelStartedCount);
	BY_POINTER(ACQUIRE_NEURON_DS, _IOR, 71, NeuronDs);
	BY_POINTER(RELEASE_NEURON_DS, _IOR, 72, NeuronDs);
	UNKNOWN(NC_PID_STATE_DUMP, _IOWR, 117, 16);

	BY_POINTER(MEM_ALLOC, _IOR, 21, MemAlloc);
	BY_POINTER(MEM_ALLOC_V2, _IOR, 102, MemAllocV2);
	BY_SIZE(MEM_ALLOC_V2MT, _IOR, 102, MemAllocV2Mt);
	BY_SIZE(MEM_ALLOC_V2MT64, _IOR, 102, MemAllocV2Mt64);
	BY_POINTER(MEM_FREE, _IOR, 22, MemFree);
	BY_POINTER(MEM_GET_PA, _IOR, 25, MemGetPa);
	BY_POINTER(MEM_GET_INFO, _IOR, 26, MemGetInfo);
	BY_POINTER(MEM_GET_EXTENDED_INFO, _IOR, 29, MemGetExtendedInfo);
	BY_SIZE(MEM_MC_GET_INFO, _IOWR, 111, MemMcGetInfo);
	BY_SIZE(MEM_MC_GET_INFO_V2, _IOWR, 111, MemMcGetInfoV2);
	BY_SIZE(RESOURCE_MMAP_INFO, _IOWR, 112, ResourceMmapInfo);
	BY_POINTER(DMABUF_FD, _IOR, 107, DmabufFd);
	BY_POINTER(DUMP_MEM_CHUNKS, _IOR, 116, DumpMemChunks);
	BY_SIZE(GET_VA_PLACEMENT, _IOW, 131, GetVaPlacement);
	BY_SIZE(HBM_SCRUB_START, _IOWR, 118, HbmScrubStart);
	BY_SIZE(HBM_SCRUB_WAIT, _IOWR, 119, HbmScrubWait);

	BY_POINTER(MEM_COPY, _IOR, 23, MemCopy);
	BY_SIZE(MEM_COPY64, _IOR, 23, MemCopy64);
	BY_POINTER(MEM_BUF_COPY, _IOWR, 24, MemBufCopy);
	BY_SIZE(MEM_BUF_COPY64, _IOWR, 24, MemBufCopy64);
	BY_POINTER(MEMSET, _IOR, 28, Memset);
	BY_SIZE(MEMSET64, _IOR, 28, Memset64);
	BY_SIZE(MEM_COPY_ASYNC, _IOWR, 108, MemCopyAsync);
	BY_SIZE(MEM_COPY_ASYNC64, _IOWR, 108, MemCopyAsync64);
	BY_SIZE(MEM_COPY_ASYNC_WAIT, _IOW, 109, MemCopyAsyncWait);
	BY_SIZE(MEM_BUF_ZEROCOPY64_2_24, _IOWR, 124, MemBufCopy64);
	BY_SIZE(MEM_BUF_ZEROCOPY64, _IOWR, 124, MemBufZerocopy64);
	UNKNOWN(MEM_BUF_ZEROCOPY64_2_29, _IOWR, 124, 64);
	BY_SIZE(MEM_BUF_ZEROCOPY64_BATCHES, _IOWR, 129, MemBufZerocopy64Batches);
	BY_POINTER(PROGRAM_ENGINE, _IOWR, 27, ProgramEngine);
	BY_POINTER(PROGRAM_ENGINE_NC, _IOWR, 105, ProgramEngineNc);
	BY_SIZE(PROGRAM_ENGINE_NC64, _IOWR, 105, ProgramEngineNc64);

	W(DMA_ENG_INIT, _IOR(N, 30, void *), "-");
	BY_POINTER(DMA_ENG_SET_STATE, _IOR, 31, DmaEngSetState);
	BY_POINTER(DMA_ENG_GET_STATE, _IOWR, 32, DmaEngGetState);
	BY_POINTER(DMA_QUEUE_INIT, _IOR, 33, DmaQueueInit);
	BY_SIZE(DMA_QUEUE_INIT_BATCH, _IOR, 133, DmaQueueInitBatch);
	BY_POINTER(DMA_QUEUE_RELEASE, _IOR, 34, DmaQueueRelease);
	BY_POINTER(DMA_QUEUE_COPY_START, _IOR, 35, DmaQueueCopyStart);
	BY_POINTER(DMA_ACK_COMPLETED, _IOR, 36, DmaAckCompleted);
	BY_POINTER(DMA_QUEUE_GET_STATE, _IOWR, 37, DmaQueueGetState);
	BY_POINTER(DMA_COPY_DESCRIPTORS, _IOR, 38, DmaCopyDescriptors);
	BY_SIZE(DMA_COPY_DESCRIPTORS64, _IOR, 38, DmaCopyDescriptors64);
	BY_POINTER(DMA_DESCRIPTOR_COPYOUT, _IOWR, 39, DmaDescriptorCopyout);
	W(DMA_QUIESCE_QUEUES, _IOR(N, 40, void *), "-");
	BY_SIZE(H2T_DMA_ALLOC_QUEUES, _IOWR, 125, H2tDmaAllocQueues);
	BY_SIZE(H2T_DMA_FREE_QUEUES, _IOWR, 126, H2tDmaFreeQueues);
	BY_SIZE(GET_ASYNC_H2T_DMA_COMPL_QUEUES, _IOWR, 135, GetAsyncH2tDmaComplQueues);

	UNKNOWN(BAR_READ, _IOR, 11, 8);
	UNKNOWN(BAR_WRITE, _IOW, 12, 8);
	UNKNOWN(POST_METRIC, _IOW, 13, 8);
	UNKNOWN(READ_HW_COUNTERS, _IOR, 61, 8);
	UNKNOWN(SEMAPHORE_INCREMENT, _IOR, 41, 8);
	UNKNOWN(SEMAPHORE_DECREMENT, _IOR, 42, 8);
	UNKNOWN(SEMAPHORE_READ, _IOWR, 43, 8);
	UNKNOWN(SEMAPHORE_WRITE, _IOR, 44, 8);
	UNKNOWN(EVENT_SET, _IOR, 45, 8);
	UNKNOWN(EVENT_GET, _IOWR, 46, 8);
	UNKNOWN(NOTIFICATIONS_INIT_V1, _IOR, 51, 8);
	UNKNOWN(NOTIFICATIONS_DESTROY_V1, _IOR, 52, 8);
	UNKNOWN(NOTIFICATIONS_INIT_V2, _IOR, 53, 8);
	UNKNOWN(NOTIFICATIONS_INIT_WITH_REALLOC_V2, _IOR, 54, 8);
	UNKNOWN(NOTIFICATIONS_QUEUE_INFO, _IOR, 58, 8);
	UNKNOWN(POWER_PROFILE, _IOW, 127, 8);
	UNKNOWN(METRICS_CTRL, _IOW, 128, 4);
	UNKNOWN(THROTTLING_NOTIFICATIONS, _IOW, 130, 4);
	UNKNOWN(GET_PERFORMANCE_PROFILE, _IOWR, 132, 8);
	UNKNOWN(GET_AVAILABLE_PROFILES, _IOWR, 134, 36);
}

int main(void)
{
	structs();
	words();
	return 0;
}
