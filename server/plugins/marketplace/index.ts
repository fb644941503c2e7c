import fp from "fastify-plugin";
import { afterStartup } from "../../infra/after-startup.ts";
import { countSales, forgetDeadAnnouncements } from "./catalogue-store.ts";
import { controlReader } from "./control.ts";
import { Listings } from "./marketplace.ts";
import { probeNominations } from "./nominations.ts";
import { reprobeDue } from "./reprobe.ts";
import { discoveryRoutes, listingRoutes } from "./routes.ts";
import type { Prober, RoundLimits } from "./round.ts";

/** Ten thousand listings are counted in ten minutes, which is how old a count may be. */
const COUNTED_A_MINUTE = 1_000;

declare module "fastify" {
  interface FastifyInstance {
    /** The marketplace: listings, their pinned terms, and announcements in settled payments. */
    listings: Listings;
    /** One round of probes of due listings. The job queue calls it every minute. */
    reprobeListings(limits?: RoundLimits): Promise<number>;
    /** The same for URLs that payments nominated. */
    probeNominations(limits?: RoundLimits): Promise<number>;
  }
}

export default fp(
  async (app) => {
    const probe: Prober = (url, options) => app.x402Client.probe(url, options);
    let isStopping = false;
    app.addHook("preClose", async () => {
      isStopping = true;
    });
    const control = controlReader((request) => app.outbound.request(request));
    const { prisma } = app;
    const { networks } = app.config;
    app.decorate("listings", new Listings({ prisma, probe, control, networks }));
    app.onFacilitated(async (body, payer) => {
      const bazaar = await app.listings.announced(body, payer);
      return bazaar && { bazaar };
    });
    const background = { prisma, probe, control, isStopping: () => isStopping };
    app.decorate("reprobeListings", (limits) => reprobeDue(background, limits));
    app.decorate("probeNominations", (limits) => probeNominations(background, limits));
    const refreshBuiltIns = () => app.listings.refreshBuiltIns();
    // If the database responds too late, the job does it.
    afterStartup(app, () => {
      refreshBuiltIns().catch((err: unknown) =>
        app.log.warn({ err }, "listing our own endpoints failed"),
      );
    });
    app.jobs.addTask(
      "listings-probe",
      async () => {
        await refreshBuiltIns();
        // In parallel, so that nominations take no time from listings.
        await Promise.all([app.reprobeListings(), app.probeNominations()]);
        await forgetDeadAnnouncements(prisma);
        await countSales(prisma, COUNTED_A_MINUTE);
      },
      { cron: "* * * * *", atStart: true, queue: "thirdParties" },
    );
    await app.register(listingRoutes);
    await app.register(discoveryRoutes);
  },
  { name: "marketplace" },
);
