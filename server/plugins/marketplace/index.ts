import fp from "fastify-plugin";
import { forgetDeadAnnouncements } from "./announcement.ts";
import { Listings, type Prober } from "./marketplace.ts";
import { reprobeDue } from "./reprobe.ts";
import { discoveryRoutes, listingRoutes } from "./routes.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The marketplace: listings, their pinned terms, and what settles here announced itself. */
    listings: Listings;
    /** Probes every listing that is due, now. The job queue calls it every minute. */
    reprobeListings(): Promise<number>;
  }
}

export default fp(
  async (app) => {
    const probe: Prober = (url, options) => app.x402Client.probe(url, options);
    let isStopping = false;
    app.addHook("preClose", async () => {
      isStopping = true;
    });
    app.decorate(
      "listings",
      new Listings({
        prisma: app.prisma,
        probe,
        networks: app.config.networks,
        onBackgroundError: (err, what) => app.log.warn({ err }, `${what} failed`),
      }),
    );
    app.onFacilitated((body) => app.listings.catalogue(body));
    const reprobeAll = () => reprobeDue({ prisma: app.prisma, probe }, () => isStopping);
    app.decorate("reprobeListings", reprobeAll);
    const refreshBuiltIns = () => app.listings.refreshBuiltIns();
    // Not awaited: a database that answers late must not keep the service from starting. The job
    // makes up for it.
    app.addHook("onReady", async () => {
      refreshBuiltIns().catch((err: unknown) =>
        app.log.warn({ err }, "listing our own endpoints failed"),
      );
    });
    app.jobs.addTask(
      "listings-probe",
      async () => {
        await refreshBuiltIns();
        await reprobeAll();
        await forgetDeadAnnouncements(app.prisma);
      },
      { cron: "* * * * *", atStart: true },
    );
    await app.register(listingRoutes);
    await app.register(discoveryRoutes);
  },
  { name: "marketplace" },
);
