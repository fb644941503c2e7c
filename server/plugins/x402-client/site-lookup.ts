/**
 * For an owner who pastes a URL: reads its offer like a quote, so that the owner can add its payee to the
 * allowlist.
 */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyInstance } from "fastify";
import { getAddress } from "viem";
import { plainWords } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import { parseSite, readableSite, siteOf } from "../../core/site.ts";
import { IdParams } from "../../schemas/common.ts";
import { isMaximum } from "../../schemes/index.ts";
import { SiteLookup, SiteLookupBody } from "../../schemas/x402-fetch.ts";
import { ownAgent } from "../agents/store.ts";
import { entriesOf } from "../agents/payees-store.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { LONGEST } from "../listings/listing-text.ts";
import type { ProbeOptions } from "./ask.ts";

const siteLookup: FastifyPluginAsyncTypebox = async (app) => {
  const route = {
    tags: ["owners: allowlist"],
    body: SiteLookupBody,
    response: { 200: SiteLookup },
  };
  app.post(
    "/api/agents/:id/allowlist/lookup",
    {
      config: { auth: "owner", limit: "probe" },
      schema: {
        ...route,
        operationId: "lookUpSite",
        summary: "The payee and price of a website; stores and pays nothing",
        params: IdParams,
      },
    },
    async ({ owner, params, body }) => {
      const agent = await ownAgent(app.prisma, owner, params.id);
      const payer = { wallet: agent.walletAddress, preferredNetwork: agent.network };
      const found = await lookUp(app, body.url, payer);
      const entries = await entriesOf(app.prisma, agent.id);
      const here = entries.filter((entry) => entry.site === found.site);
      return { ...found, listed: here.map(({ address }) => getAddress(address)) };
    },
  );

  app.post(
    "/api/allowlist/lookup",
    {
      config: { auth: "owner", limit: "probe" },
      schema: {
        ...route,
        operationId: "lookUpSiteForNewAgent",
        summary: "The same before there is an agent: nothing is listed yet",
      },
    },
    async ({ body }) => ({ ...(await lookUp(app, body.url, {})), listed: [] }),
  );
};

async function lookUp(
  app: FastifyInstance,
  pasted: string,
  payer: Pick<ProbeOptions, "wallet" | "preferredNetwork">,
): Promise<Omit<SiteLookup, "listed">> {
  const { url, site } = readPasted(pasted);
  const terms = await app.x402Client.probe(url.href, {
    method: "GET",
    anyProtocol: true,
    ...payer,
  });
  const visible = (text: string | null, longest: number) => plainWords(text, longest) || null;
  return {
    site,
    readableSite: readableSite(site),
    payTo: getAddress(terms.payTo),
    price: formatAtomic(terms.priceAtomic),
    ...(isMaximum(terms.requirement) && { maximum: true as const }),
    asset: getAddress(terms.asset),
    network: terms.network,
    x402Version: terms.x402Version,
    thirdParty: {
      untrusted: true as const,
      serviceName: visible(terms.name, LONGEST.name),
      description: visible(terms.description, LONGEST.description),
      mimeType: visible(terms.mimeType, LONGEST.mimeType),
      resource: visible(terms.resourceUrl, 300),
    },
  };
}

/** People copy addresses without a scheme; only https is assumed. */
function readPasted(text: string): { url: URL; site: string } {
  const pasted = text.trim();
  const source = /^[a-z][a-z0-9+.-]*:\/\//i.test(pasted) ? pasted : `https://${pasted}`;
  if (!URL.canParse(source))
    throw refuseField("validation_failed", "body.url", "is not the address of a website");
  const url = new URL(source);
  if (url.username !== "" || url.password !== "")
    throw refuseField("validation_failed", "body.url", "must not contain a user or a password");
  const read = parseSite(siteOf(url));
  if (!read.ok) throw refuseField("validation_failed", "body.url", read.reason);
  return { url, site: read.site };
}

export default siteLookup;
