/** Finds paid APIs that nobody listed here: in the documents of known hosts, and in catalogues that the operator names. */
import fp from "fastify-plugin";
import { Counter } from "prom-client";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import { catalogueOfCell, cellOfCatalogue, dropDead, dropShadows } from "../listings/foreign.ts";
import type { Prober } from "../marketplace/round.ts";
import { probeCandidates } from "./candidates.ts";
import { reviveCandidates, syncDocuments } from "./documents-store.ts";
import { readDocuments, type ReadReport } from "./documents.ts";

declare module "fastify" {
  interface FastifyInstance {
    discovery: {
      /** The documents that should be known, and entries that must go. */
      tidy(): Promise<void>;
      /** Reads due documents; returns how many. */
      read(): Promise<number>;
      /** Probes URLs that wait; returns how many. */
      probe(): Promise<number>;
    };
  }
}

const PAGE_OF_CELL_MS = 5_000;

export default fp(
  async (app) => {
    const { prisma, config, log } = app;
    const reads = new Counter({
      name: "purser_discovery_reads_total",
      help: "Documents of others that name paid URLs (a host's /.well-known/x402, a configured catalogue), by result",
      labelNames: ["kind", "outcome"],
      registers: [app.metrics],
    });
    const ends = new Counter({
      name: "purser_discovered_urls_total",
      help: "URLs of such documents that were probed to the end: listed, refused or dropped again",
      labelNames: ["kind", "outcome"],
      registers: [app.metrics],
    });
    let isStopping = false;
    app.addHook("preClose", async () => {
      isStopping = true;
    });
    const probe: Prober = (url, options) => app.x402Client.probe(url, options);
    /** Cells may have private addresses, which the guarded way out refuses. */
    async function send(request: OutboundRequest): Promise<OutboundResponse> {
      const id = cellOfCatalogue(String(request.url));
      if (id === undefined) return app.outbound.request(request);
      const { pathname, search } = new URL(request.url);
      const read = await app.cells?.readPublic(id, `${pathname}${search}`, PAGE_OF_CELL_MS);
      if (!read) throw new OutboundError("unreachable");
      return { ...read, headers: {} };
    }
    const ownHost = new URL(config.publicUrl).host;
    const deps = {
      prisma,
      probe,
      networks: config.networks,
      send,
      mayRequest: (url: URL): boolean => {
        if (url.host === ownHost) return false;
        try {
          app.outbound.assertAllowed(url);
          return true;
        } catch {
          return false;
        }
      },
      report(read: ReadReport): void {
        reads.inc({ kind: read.kind, outcome: read.outcome });
        if (read.kind !== "catalogue") log.debug({ read }, "a host's document was read");
        else if (read.outcome === "read") log.info({ read }, "a catalogue was read");
        else log.warn({ read }, "a catalogue could not be read");
      },
      onEnd: (end: { kind: string; outcome: string }) => ends.inc(end),
      isStopping: () => isStopping,
    };
    app.decorate("discovery", {
      async tidy() {
        const ofCells = (app.cells?.others ?? []).map(({ id }) => catalogueOfCell(id));
        const removed = await syncDocuments(prisma, [...config.foreignCatalogues, ...ofCells]);
        const dropped = (await dropShadows(prisma)) + (await dropDead(prisma));
        await reviveCandidates(prisma);
        if (removed > 0) log.info({ removed }, "catalogues and entries were removed");
        if (dropped > 0) ends.inc({ kind: "any", outcome: "dropped" }, dropped);
      },
      async read() {
        const [hosts, catalogues] = await Promise.all([
          readDocuments(deps, "well-known"),
          readDocuments(deps, "catalogue"),
        ]);
        return hosts + catalogues;
      },
      probe: () => probeCandidates(deps),
    });
    app.jobs.addTask(
      "discover-listings",
      async () => {
        await app.discovery.tidy();
        await Promise.all([app.discovery.read(), app.discovery.probe()]);
      },
      { cron: "* * * * *", atStart: true, queue: "thirdParties" },
    );
  },
  { name: "discovery" },
);
