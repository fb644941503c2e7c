/** Reads the documents that are due: bounded in bytes, pages, entries and time, through the guarded way out. */
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { cellOfCatalogue } from "../listings/foreign.ts";
import { probeRound, type RoundLimits } from "../marketplace/round.ts";
import { readCataloguePage, type CatalogueEntry } from "./catalogue.ts";
import {
  claimDocuments,
  storeFailure,
  storeRead,
  type DocumentKind,
  type DueDocument,
  type NamedUrl,
} from "./documents-store.ts";
import { readWellKnown, WELL_KNOWN_LIMITS } from "./well-known.ts";

export interface ReadReport {
  url: string;
  kind: DocumentKind;
  outcome: "read" | "failed" | "missing";
  reason?: string;
  entries?: number;
  added?: number;
  changed?: number;
  removed?: number;
}

export interface DocumentDeps {
  prisma: PrismaClient;
  send: (request: OutboundRequest) => Promise<OutboundResponse>;
  /** Whether a request may be sent there at all, before DNS. */
  mayRequest: (url: URL) => boolean;
  networks: readonly NetworkFacts[];
  report: (read: ReadReport) => void;
  isStopping(): boolean;
}

const HOUR_MS = 3_600_000;
const READ_AGAIN_MS = 6 * HOUR_MS;
/** Other cells are part of this service: what is removed there disappears here. */
const READ_CELL_AGAIN_MS = 5 * 60_000;
const LONGEST_MS = 24 * HOUR_MS;
/** Longer than any read may take. */
const LEASE_MS = 300_000;
export const ROUNDS: Record<DocumentKind, RoundLimits> = {
  "well-known": { inFlight: 4, roundMs: 20_000, perHost: 1, slowMs: 0 },
  catalogue: { inFlight: 2, roundMs: 20_000, perHost: 1, slowMs: 0 },
};

export const CATALOGUE_LIMITS = {
  pageSize: 100,
  pages: 20,
  entries: 1_000,
  /** So that one host does not fill a catalogue's places. */
  perHost: 10,
  pageBytes: 1024 * 1024,
  pageMs: 10_000,
  allMs: 60_000,
};

/** Owners listed these, within limits of their own. */
const CELL_LIMITS = { entries: 2_000, perHost: 200 };

/** Reads due documents of one kind, within the time of one round; returns how many. */
export function readDocuments(
  deps: DocumentDeps,
  kind: DocumentKind,
  limits: RoundLimits = ROUNDS[kind],
): Promise<number> {
  return probeRound(
    {
      claim: (limit, exceptHosts) =>
        claimDocuments(deps.prisma, { kind, limit, exceptHosts, leaseMs: LEASE_MS }),
      probe: (document) => readDocument(deps, document),
      isStopping: () => deps.isStopping(),
    },
    limits,
  );
}

type Read =
  | { outcome: "read"; named: NamedUrl[] }
  | { outcome: "missing" | "failed"; reason: string };

async function readDocument(deps: DocumentDeps, document: DueDocument): Promise<void> {
  const { url, kind } = document;
  const isOfCell = cellOfCatalogue(url) !== undefined;
  const read = kind === "catalogue" ? await readCatalogue(deps, url) : await readHost(deps, url);
  if (read.outcome === "failed") {
    const laterMs = Math.min(LONGEST_MS, (HOUR_MS / 4) * 2 ** Math.min(document.failures, 10));
    const delayMs = isOfCell ? READ_CELL_AGAIN_MS : laterMs;
    await storeFailure(deps.prisma, document, read.reason, varied(delayMs));
    deps.report({ url, kind, ...read });
    return;
  }
  // A host without a document has withdrawn what it named before.
  const named = read.outcome === "read" ? read.named : [];
  const changes = await storeRead(
    deps.prisma,
    document,
    named,
    varied(isOfCell ? READ_CELL_AGAIN_MS : READ_AGAIN_MS),
  );
  deps.report({ url, kind, outcome: read.outcome, entries: named.length, ...changes });
}

const varied = (ms: number): number => Math.round(ms * (0.9 + Math.random() * 0.2));

async function readHost({ send }: DocumentDeps, url: string): Promise<Read> {
  const response = await send({ url, ...WELL_KNOWN_LIMITS }).catch(failureOf);
  if ("reason" in response) return response;
  const { status } = response;
  if (status >= 500 || status === 429) return failed(`It answered with status ${status}.`);
  if (status !== 200) return { outcome: "missing", reason: `It answered with status ${status}.` };
  const { resources } = readWellKnown(response.body.toString("utf8"), new URL(url));
  return {
    outcome: "read",
    named: resources
      .filter(({ method }) => method === "GET")
      .map(({ url: named }) => ({ url: named.href, host: named.host })),
  };
}

/** All pages, or none of them: half a catalogue does not say what is no longer in it. */
async function readCatalogue(deps: DocumentDeps, url: string): Promise<Read> {
  const { pageSize, pages, allMs } = CATALOGUE_LIMITS;
  const { entries: most, perHost } = cellOfCatalogue(url) ? CELL_LIMITS : CATALOGUE_LIMITS;
  const endsAt = performance.now() + allMs;
  const found = new Map<string, CatalogueEntry>();
  const ofHost = new Map<string, number>();
  let offset = 0;
  for (let page = 0; page < pages && found.size < most; page += 1) {
    if (deps.isStopping() || performance.now() > endsAt)
      return failed("Reading all of it took too long.");
    const read = await readPage(deps, pageOf(url, offset, pageSize));
    if ("reason" in read) return read;
    const before = found.size;
    for (const entry of read.entries) {
      const count = ofHost.get(entry.host) ?? 0;
      if (found.has(entry.url) || found.size >= most || count >= perHost) continue;
      ofHost.set(entry.host, count + 1);
      found.set(entry.url, entry);
    }
    offset += read.count;
    const isRepeated = read.entries.length > 0 && found.size === before && read.total === undefined;
    if (read.count === 0 || isRepeated || (read.total !== undefined && offset >= read.total)) break;
  }
  return { outcome: "read", named: [...found.values()] };
}

function pageOf(url: string, offset: number, limit: number): URL {
  const page = new URL(url);
  page.searchParams.set("limit", String(limit));
  page.searchParams.set("offset", String(offset));
  return page;
}

async function readPage({ send, networks, mayRequest }: DocumentDeps, url: URL) {
  const { pageBytes, pageMs } = CATALOGUE_LIMITS;
  const response = await send({ url, timeoutMs: pageMs, maxBytes: pageBytes }).catch(failureOf);
  if ("reason" in response) return response;
  if (response.status !== 200) return failed(`It answered with status ${response.status}.`);
  const text = response.body.toString("utf8");
  return (
    readCataloguePage(text, { networks, mayRequest }) ?? failed("It is no page of a catalogue.")
  );
}

const failed = (reason: string) => ({ outcome: "failed", reason }) as const;

function failureOf(error: unknown) {
  if (error instanceof OutboundError) return failed(`It could not be read: ${error.failure}.`);
  throw error;
}
