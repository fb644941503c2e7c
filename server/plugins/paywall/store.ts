/** The paywall's storage of our own paid routes, for all replicas and across restarts. */
import { createHash } from "node:crypto";
import type { MeteredCharge, PaywallStore } from "../../../packages/paywall/src/paywall.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { isRecord } from "../../core/foreign-text.ts";

type Kind = "charge" | "paid" | "nonce";

export class PostgresPaywallStore implements PaywallStore {
  readonly #prisma: PrismaClient;
  constructor(prisma: PrismaClient) {
    this.#prisma = prisma;
  }

  async keepCharge(proof: string, charge: MeteredCharge, until: Date): Promise<MeteredCharge> {
    const isFirst = await this.#add("charge", proof, until, charge);
    return isFirst ? charge : ((await this.findCharge(proof)) ?? charge);
  }

  async findCharge(proof: string): Promise<MeteredCharge | undefined> {
    const value = (await this.#find("charge", proof))?.value;
    if (!isRecord(value)) return undefined;
    const { resource, amount } = value;
    if (typeof resource !== "string" || typeof amount !== "string") return undefined;
    return { resource, amount };
  }

  async paid(resource: string, address: string, until: Date): Promise<void> {
    const name = keyOf("paid", `${address} ${resource}`);
    await this.#prisma.paywallNote.upsert({
      where: { kind_hash: name },
      create: { ...name, until },
      update: { until },
    });
  }

  async hasPaid(resource: string, address: string): Promise<boolean> {
    return (await this.#find("paid", `${address} ${resource}`)) !== null;
  }

  useNonce(nonce: string, until: Date): Promise<boolean> {
    return this.#add("nonce", nonce, until);
  }

  /** True if the name is new, or its previous entry has expired. */
  async #add(kind: Kind, name: string, until: Date, value?: MeteredCharge): Promise<boolean> {
    const key = keyOf(kind, name);
    const row = { ...key, until, ...(value && { value: { ...value } }) };
    const { count } = await this.#prisma.paywallNote.createMany({
      data: [row],
      skipDuplicates: true,
    });
    if (count === 1) return true;
    const replaced = await this.#prisma.paywallNote.updateMany({
      where: { ...key, until: { lt: new Date() } },
      data: row,
    });
    return replaced.count === 1;
  }

  #find(kind: Kind, name: string) {
    return this.#prisma.paywallNote.findFirst({
      where: { ...keyOf(kind, name), until: { gte: new Date() } },
    });
  }
}

const keyOf = (kind: Kind, name: string): { kind: Kind; hash: string } => ({
  kind,
  hash: createHash("sha256").update(name).digest("hex"),
});
