/** Logs without secrets, and metrics. */
import { hostname } from "node:os";
import type { FastifyRequest, FastifyServerOptions } from "fastify";
import pino, { type SerializedError } from "pino";
import fp from "fastify-plugin";
import type { Config } from "../config.ts";
import { outageLog } from "./outage-log.ts";
import { withSourceLocations } from "./source-places.ts";
import { urlsOfHosts } from "../core/database-settings.ts";
import { hideSecrets, secretsOfUrl, type Hide } from "../core/secret-text.ts";
import { Gauge, Histogram, Registry, collectDefaultMetrics } from "prom-client";

export interface LogDestination {
  write(line: string): void;
}

/** These fields could contain a secret and are removed before a line is written. */
const SECRET_PATHS = [
  "authorization",
  "cookie",
  "apiKey",
  "privateKey",
  "signature",
  "token",
  "password",
  "*.authorization",
  "*.cookie",
  "*.apiKey",
  "*.privateKey",
  "*.signature",
  "*.token",
  "*.password",
  'headers["set-cookie"]',
  'headers["payment-signature"]',
  'headers["x-payment"]',
];

/** An API key or token that was put into a path by mistake. */
const API_KEY = /purser_(?:[a-z]{1,6}[0-9]{0,3}_){0,2}[0-9A-Za-z]{20,}/g;

/** A receipt is read by anyone who knows its id. */
const RECEIPT = /rcp_[0-9A-Za-z]+/g;

/** Query strings are never logged: a careless client may have put secrets there. */
const requestSerializer = (request: FastifyRequest): Record<string, unknown> => ({
  method: request.method,
  path: request.url
    .split("?", 1)[0]
    ?.replaceAll(API_KEY, "purser_[secret]")
    .replaceAll(RECEIPT, "rcp_[secret]"),
  ip: request.ip,
});

/** pino's error serializer, with positions in the sources. */
const errorSerializer = (error: Error): SerializedError => {
  const serialized = pino.stdSerializers.err(error);
  return { ...serialized, stack: withSourceLocations(serialized.stack) };
};

const SHORTEST_PASSWORD = 12;

/** Hides the operator's secrets from every log line, wherever they appear. */
export function hideConfigured(config: Config): Hide {
  const databases = [config.databaseUrl, config.databasePooledUrl, config.databaseReadUrl].flatMap(
    (text) => (text === undefined ? [] : [text, ...urlsOfHosts(text)]),
  );
  const passwords = databases.flatMap((text) => {
    const { password } = URL.canParse(text) ? new URL(text) : { password: "" };
    // Hiding a word such as "postgres" would make every line unreadable.
    return password.length < SHORTEST_PASSWORD
      ? [text]
      : [text, password, decodeURIComponent(password)];
  });
  return hideSecrets([
    ...config.networks.flatMap(({ rpcUrls, wsUrls }) =>
      [...rpcUrls, ...wsUrls].flatMap(secretsOfUrl),
    ),
    ...passwords,
    ...config.relayerPrivateKeys,
    ...config.masterKeys.flatMap(({ key }) => (key ? [Buffer.from(key).toString("base64")] : [])),
    ...config.facilitatorApiKeys,
    ...(config.mail?.secrets ?? []),
    ...(config.vapidKeys === undefined ? [] : [config.vapidKeys.privateKey]),
    ...(config.screening?.token === undefined ? [] : [config.screening.token]),
    ...secretsOfUrl(config.screening?.url ?? ""),
    ...(config.metricsToken === undefined ? [] : [config.metricsToken]),
    ...secretsOfUrl(config.tracesUrl ?? ""),
    ...secretsOfHeaders(config.tracesHeaders),
  ]);
}

/** Of `name=value,other=value`: the whole and each value, which may be percent-encoded. */
function secretsOfHeaders(headers: string): string[] {
  const values = headers.split(",").map((pair) => pair.slice(pair.indexOf("=") + 1).trim());
  return [headers, ...values, ...values.map(decoded)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function loggerOptions(
  config: Config,
  destination?: LogDestination,
): FastifyServerOptions["logger"] {
  return {
    level: config.logLevel,
    ...(config.worker !== undefined && {
      base: { pid: process.pid, hostname: hostname(), worker: config.worker },
    }),
    // Errors are created without secrets; this catches what was overlooked.
    hooks: { streamWrite: hideConfigured(config), logMethod: outageLog() },
    redact: { paths: SECRET_PATHS, censor: "[secret]" },
    serializers: { req: requestSerializer, err: errorSerializer },
    ...(destination ? { stream: destination } : {}),
  };
}

declare module "fastify" {
  interface FastifyInstance {
    /** One registry per app, so that several apps in one process (tests) do not collide. */
    metrics: Registry;
  }
}

interface Labelled {
  labels: Record<string, string>;
}

export interface GaugeTable<Row> {
  labelNames: readonly string[];
  /** Read once a scrape, for all gauges of the table. */
  rows(): readonly (Row & Labelled)[] | Promise<readonly (Row & Labelled)[]>;
  /** By name. Without a value a row is left out. */
  gauges: Record<string, readonly [help: string, value: (row: Row) => number | undefined]>;
}

/**
 * Registers gauges that show the rows of the last successful read: a scrape must not fail because the database or a
 * node cannot be reached.
 */
export function registerGauges<Row>(registry: Registry, table: GaugeTable<Row>): void {
  let reading: Promise<void> | undefined;
  const read = async (): Promise<void> => {
    const rows = await table.rows();
    for (const { gauge, value } of gauges) {
      gauge.reset();
      for (const row of rows) {
        const number = value(row);
        if (number !== undefined) gauge.set(row.labels, number);
      }
    }
  };
  const collect = (): Promise<void> =>
    (reading ??= read()
      .catch(() => undefined)
      .finally(() => (reading = undefined)));
  const { labelNames } = table;
  const gauges = Object.entries(table.gauges).map(([name, [help, value]]) => ({
    value,
    gauge: new Gauge({ name, help, labelNames, registers: [registry], collect }),
  }));
}

export const metrics = fp(
  async (app) => {
    const registry = new Registry();
    collectDefaultMetrics({ register: registry });
    const seconds = new Histogram({
      name: "purser_http_request_seconds",
      help: "Time to answer, by route and status",
      labelNames: ["method", "route", "status"],
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30],
      registers: [registry],
    });
    app.decorate("metrics", registry);
    app.addHook("onResponse", (request, reply, done) => {
      const route = request.is404 ? "none" : (request.routeOptions.url ?? "none");
      seconds.observe(
        { method: request.method, route, status: reply.statusCode },
        reply.elapsedTime / 1000,
      );
      done();
    });
    app.addHook("onClose", async () => registry.clear());
  },
  { name: "metrics" },
);
