import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import {
  NewPasskeyBody,
  PasskeyOptions,
  Passkeys,
  passkeysRefusals,
  Payout,
  PayoutBody,
  payoutRefusals,
  SignPasskeysBody,
} from "../../schemas/passkeys.ts";
import { signsWith } from "../owners/store.ts";
import type { OwnerCall } from "./call.ts";
import { offerPasskey, signPasskeys } from "./list.ts";
import { assertHasPayout, firstPayoutAt, namePayout, payoutOf } from "./payout.ts";
import { depsOf, optionsFor } from "./sign-in-routes.ts";
import { lastVersion, passkeysOf } from "./store.ts";
import { creationOptions } from "./webauthn.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: passkeys"];
  const callOf = ({ owner }: Pick<FastifyRequest, "owner">): OwnerCall => ({
    prisma: app.prisma,
    orders: app.ownerOrders,
    owner,
    // An owner's orders that concern no agent are signed for the first network.
    chainId: app.config.networks[0].chainId,
  });

  app.get(
    "/api/passkeys",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listPasskeys",
        summary: "This owner's passkeys, oldest first; for a member of a team, the member's own",
        response: { 200: Passkeys },
      },
    },
    // A member signs for a team with passkeys of the own account.
    async ({ owner }) => view(owner.member ? { ...owner.member, id: owner.member.ownerId } : owner),
  );

  app.get(
    "/api/passkeys/options",
    {
      config: { auth: "owner", errors: ["passkeys_not_available"] },
      schema: {
        tags,
        operationId: "getPasskeyOptions",
        summary: "What a browser needs to make another passkey of this owner",
        response: { 200: PasskeyOptions },
      },
    },
    async ({ owner }) => {
      const { places } = depsOf(app);
      const all = await passkeysOf(app.prisma, owner.id);
      const known = all.filter(({ status }) => status !== "removed");
      return optionsFor(app, "create", (text) => creationOptions(places, text, known));
    },
  );

  app.post(
    "/api/passkeys",
    {
      config: {
        auth: "owner",
        team: false,
        errors: [
          "invalid_signature",
          "passkeys_not_available",
          "passkey_known",
          "conflict",
          "not_found",
        ],
      },
      schema: {
        tags,
        operationId: "offerPasskey",
        summary: "Store a new passkey, which signs nothing until the owner signs a list with it",
        body: NewPasskeyBody,
        response: { 200: Passkeys },
      },
    },
    async (request) => {
      await offerPasskey(callOf(request), request.body, depsOf(app));
      return view(request.owner);
    },
  );

  app.put(
    "/api/passkeys",
    {
      config: { auth: "owner", team: false, errors: ["not_found"] },
      schema: {
        tags,
        operationId: "signPasskeys",
        summary: "Set which passkeys may sign; the owner signs the whole list",
        body: SignPasskeysBody,
        response: { 200: Passkeys, ...passkeysRefusals },
      },
    },
    async (request) => {
      await signPasskeys(callOf(request), request.body);
      return view(request.owner);
    },
  );

  app.get(
    "/api/payout",
    {
      config: { auth: "owner", errors: ["conflict"] },
      schema: {
        tags,
        operationId: "getPayout",
        summary: "The only address to which an owner without a wallet withdraws",
        response: { 200: Payout },
      },
    },
    async ({ owner }) => {
      assertHasPayout(owner);
      return viewPayout(owner);
    },
  );

  app.put(
    "/api/payout",
    {
      config: { auth: "owner", errors: ["invalid_address", "conflict", "not_found"] },
      schema: {
        tags,
        operationId: "namePayout",
        summary:
          "Name the payout address in a signed order; the first one is in force at once, another one after 24 hours",
        body: PayoutBody,
        response: { 200: Payout, ...payoutRefusals },
      },
    },
    async (request) => {
      const assets = app.chains.all.map(({ network }) => network.usdc.address.toLowerCase());
      await namePayout({ ...callOf(request), assets }, request.body);
      return viewPayout(request.owner);
    },
  );

  async function view({ id, chainId }: Pick<FastifyRequest["owner"], "id" | "chainId">) {
    const [all, version] = await Promise.all([
      passkeysOf(app.prisma, id),
      lastVersion(app.prisma, id, "Passkeys"),
    ]);
    return {
      signsWith: signsWith(chainId),
      version,
      passkeys: all.map(({ ownerId: _ownerId, usedAt, createdAt, ...row }) => ({
        ...row,
        usedAt: usedAt?.toISOString() ?? null,
        createdAt: createdAt.toISOString(),
      })),
    };
  }

  async function viewPayout(owner: FastifyRequest["owner"]) {
    const payout = await payoutOf(app.prisma, owner);
    if (!payout) return { address: null, since: null, next: null };
    const { address, sinceSeconds, next } = payout;
    const since =
      sinceSeconds === undefined
        ? await firstPayoutAt(app.prisma, owner.id)
        : new Date(Number(sinceSeconds) * 1000);
    return {
      address: getAddress(address),
      since: since.toISOString(),
      next: next && {
        address: getAddress(next.address),
        from: new Date(Number(next.fromSeconds) * 1000).toISOString(),
      },
    };
  }
};
export default routes;
