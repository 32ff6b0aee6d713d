/*
 * OCF, the engine of Open CAS, on a list of reads: how many bytes come from its cache, and how many it writes there. See bench/ocf/run.
 *
 *     harness READS STORE_BYTES CACHE_BYTES LINE_BYTES PROMOTION
 *
 * READS has a line for each read: offset and length in bytes. PROMOTION is 'always' or 'nhit'. Both devices are only counted: nothing is
 * stored, so what is read has no content. One thread; OCF's queues are run between reads, so that each read ends before the next begins.
 *
 * One line comes out, of JSON.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ocf/ocf.h>
#include <ocf/promotion/nhit.h>

#include "ocf_env.h"

#define VOLUME 1
#define PAGE 4096

/* ---- data: memory comes only for who looks at it ---- */

struct data {
	char *bytes;
	uint64_t size, position;
};

static ctx_data_t *data_alloc(uint32_t pages)
{
	struct data *data = calloc(1, sizeof(*data));

	if (data)
		data->size = (uint64_t)pages * PAGE;
	return data;
}

static void data_free(ctx_data_t *of)
{
	struct data *data = of;

	if (data)
		free(data->bytes);
	free(data);
}

static char *data_at(struct data *data, uint64_t size)
{
	char *at;

	if (!data->bytes)
		data->bytes = calloc(1, data->size);
	if (!data->bytes || data->position + size > data->size) {
		fprintf(stderr, "harness: no memory, or %lu bytes beyond a buffer of %lu\n", data->position + size, data->size);
		exit(1);
	}
	at = data->bytes + data->position;
	data->position += size;
	return at;
}

static uint32_t data_read(void *to, ctx_data_t *from, uint32_t size)
{
	memcpy(to, data_at(from, size), size);
	return size;
}

static uint32_t data_write(ctx_data_t *to, const void *from, uint32_t size)
{
	memcpy(data_at(to, size), from, size);
	return size;
}

static uint32_t data_zero(ctx_data_t *to, uint32_t size)
{
	memset(data_at(to, size), 0, size);
	return size;
}

static uint32_t data_seek(ctx_data_t *of, ctx_data_seek_t from, uint32_t offset)
{
	struct data *data = of;

	data->position = from == ctx_data_seek_begin ? offset : data->position + offset;
	return offset;
}

/* From one read to another: nobody looks at it. */
static uint64_t data_copy(ctx_data_t *to, ctx_data_t *from, uint64_t at, uint64_t of, uint64_t bytes)
{
	return bytes;
}

static int data_lock(ctx_data_t *data)
{
	return 0;
}

static void data_unlock(ctx_data_t *data)
{
}

/* ---- devices: the name is "store" or "cache" and the size ---- */

struct device {
	uint64_t size;
	int is_cache;
};

static uint64_t read_bytes[2], written_bytes[2];

static int device_open(ocf_volume_t volume, void *parameters)
{
	struct device *device = ocf_volume_get_priv(volume);
	const char *name = ocf_uuid_to_str(ocf_volume_get_uuid(volume));

	device->is_cache = name[0] == 'c';
	device->size = strtoull(name + 5, NULL, 10);
	return 0;
}

static void device_close(ocf_volume_t volume)
{
}

static void device_io(ocf_volume_t volume, ocf_forward_token_t token, int direction, uint64_t address, uint64_t bytes, uint64_t offset)
{
	struct device *device = ocf_volume_get_priv(volume);

	(direction == OCF_WRITE ? written_bytes : read_bytes)[device->is_cache] += bytes;
	ocf_forward_end(token, 0);
}

static void device_flush(ocf_volume_t volume, ocf_forward_token_t token)
{
	ocf_forward_end(token, 0);
}

static void device_discard(ocf_volume_t volume, ocf_forward_token_t token, uint64_t address, uint64_t bytes)
{
	ocf_forward_end(token, 0);
}

static unsigned int device_most(ocf_volume_t volume)
{
	return 4 << 20;
}

static uint64_t device_size(ocf_volume_t volume)
{
	return ((struct device *)ocf_volume_get_priv(volume))->size;
}

static const struct ocf_volume_properties device = {
	.name = "counted",
	.volume_priv_size = sizeof(struct device),
	.ops = {
		.open = device_open,
		.close = device_close,
		.forward_io = device_io,
		.forward_flush = device_flush,
		.forward_discard = device_discard,
		.get_max_io_size = device_most,
		.get_length = device_size,
	},
};

/* ---- the rest of what OCF asks for ---- */

static int cleaner_init(ocf_cleaner_t cleaner)
{
	return 0;
}

static void cleaner_none(ocf_cleaner_t cleaner)
{
}

static int print(ocf_logger_t logger, ocf_logger_lvl_t level, const char *format, va_list arguments)
{
	return level <= log_warn ? vfprintf(stderr, format, arguments) : 0;
}

static int no_stack(ocf_logger_t logger)
{
	return 0;
}

static const struct ocf_ctx_config context = {
	.name = "counted reads",
	.ops = {
		.data = {
			.alloc = data_alloc,
			.free = data_free,
			.mlock = data_lock,
			.munlock = data_unlock,
			.read = data_read,
			.write = data_write,
			.zero = data_zero,
			.seek = data_seek,
			.copy = data_copy,
			.secure_erase = data_unlock,
		},
		.cleaner = { .init = cleaner_init, .kick = cleaner_none, .stop = cleaner_none },
		.logger = { .print = print, .dump_stack = no_stack },
	},
};

static ocf_queue_t queues[2];
static int kicked;

static void kick(ocf_queue_t queue)
{
	kicked = 1;
}

static void stopped(ocf_queue_t queue)
{
}

static const struct ocf_queue_ops queue_ops = { .kick = kick, .stop = stopped };

static void run_queues(void)
{
	while (kicked) {
		kicked = 0;
		for (int at = 0; at < 2; at++)
			if (queues[at])
				ocf_queue_run(queues[at]);
	}
}

/* ---- the run ---- */

static int done, failed;
static ocf_core_t core;

static void ended(ocf_cache_t cache, void *private, int error)
{
	done = 1;
	failed = error;
}

static void core_added(ocf_cache_t cache, ocf_core_t added, void *private, int error)
{
	core = added;
	ended(cache, private, error);
}

static void read_ended(ocf_io_t io, void *private, void *more, int error)
{
	ended(NULL, NULL, error);
	ocf_io_put(io);
}

static void must(const char *what, int error)
{
	if (error) {
		fprintf(stderr, "harness: %s: error %d\n", what, error);
		exit(1);
	}
}

static void wait_for(const char *what)
{
	while (!done && kicked)
		run_queues();
	must(what, done ? failed : -EIO);
	done = 0;
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*end || end == text || value == 0) {
		fprintf(stderr, "harness: '%s' is no number above 0\n", text);
		exit(2);
	}
	return value;
}

static void start(ocf_ctx_t ctx, const char *cache_name, const char *store_name, uint64_t line, int nhit)
{
	struct ocf_mngt_cache_config config = { .name = "cache" };
	struct ocf_mngt_cache_attach_config attach = { };
	struct ocf_mngt_core_config core_config = { };
	struct ocf_volume_uuid name;
	ocf_volume_t volume;
	ocf_cache_t cache;

	ocf_mngt_cache_config_set_default(&config);
	config.metadata_volatile = true;
	config.cache_mode = ocf_cache_mode_wt;
	config.cache_line_size = line;
	config.promotion_policy = nhit ? ocf_promotion_nhit : ocf_promotion_always;
	must("cache start", ocf_mngt_cache_start(ctx, &cache, &config, NULL));
	must("queue", ocf_queue_create_mngt(cache, &queues[0], &queue_ops));
	must("queue", ocf_queue_create(cache, &queues[1], &queue_ops));

	must("name", ocf_uuid_set_str(&name, (char *)cache_name));
	must("volume", ocf_volume_create(&volume, ocf_ctx_get_volume_type(ctx, VOLUME), &name));
	ocf_mngt_cache_attach_config_set_default(&attach);
	attach.device.volume = volume;
	attach.device.perform_test = false;
	attach.discard_on_start = false;
	ocf_mngt_cache_attach(cache, &attach, ended, NULL);
	wait_for("cache attach");

	ocf_mngt_core_config_set_default(&core_config);
	strcpy(core_config.name, "store");
	core_config.volume_type = VOLUME;
	must("name", ocf_uuid_set_str(&core_config.uuid, (char *)store_name));
	ocf_mngt_cache_add_core(cache, &core_config, core_added, NULL);
	wait_for("store");
	/* Its shortcut for long streams would send most of these reads past the cache. */
	must("streams", ocf_mngt_core_set_seq_cutoff_policy(core, ocf_seq_cutoff_policy_never));
}

int main(int count, char **words)
{
	char cache_name[40], store_name[40], *promotion;
	uint64_t offset, length, asked = 0, reads = 0, before[2], line;
	struct data *data;
	ocf_ctx_t ctx;
	ocf_io_t io;
	FILE *file;
	int got, nhit;

	if (count != 6 || (strcmp(words[5], "always") && strcmp(words[5], "nhit"))) {
		fprintf(stderr, "usage: harness READS STORE_BYTES CACHE_BYTES LINE_BYTES always|nhit\n");
		return 2;
	}
	promotion = words[5];
	nhit = !strcmp(promotion, "nhit");
	line = number(words[4]);
	snprintf(store_name, sizeof(store_name), "store%lu", number(words[2]));
	snprintf(cache_name, sizeof(cache_name), "cache%lu", number(words[3]));
	file = fopen(words[1], "r");
	if (!file) {
		perror(words[1]);
		return 1;
	}
	must("context", ocf_ctx_create(&ctx, &context));
	must("device", ocf_ctx_register_volume_type(ctx, VOLUME, &device));
	start(ctx, cache_name, store_name, line, nhit);
	before[0] = read_bytes[1];
	before[1] = written_bytes[1];
	while ((got = fscanf(file, "%lu %lu", &offset, &length)) == 2) {
		data = data_alloc(length / PAGE + 1);
		io = ocf_volume_new_io(ocf_core_get_front_volume(core), queues[1], offset, length, OCF_READ, 0, 0);
		if (!data || !io)
			must("memory for a read", -ENOMEM);
		ocf_io_set_data(io, data, 0);
		ocf_io_set_cmpl(io, NULL, NULL, read_ended);
		ocf_core_submit_io(io);
		run_queues();
		wait_for("read");
		data_free(data);
		asked += length;
		reads += 1;
	}
	if (got != EOF) {
		fprintf(stderr, "harness: %s: line %lu is not an offset and a length\n", words[1], reads + 1);
		return 1;
	}
	printf("{\"policy\": \"OCF %s, lines of %lu KiB\", \"reads\": %lu, \"asked_bytes\": %lu, \"hit_bytes\": %lu, \"written_bytes\": %lu}\n", promotion,
	       line >> 10, reads, asked, read_bytes[1] - before[0], written_bytes[1] - before[1]);
	return 0;
}
