import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { atomic, canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Listing, ProbeResult } from "../../lib/wire.ts";
import { createListing, updateListing } from "./api.ts";

/** An existing listing, or a probed API for a new one. */
export type ListingTarget = { onDone: (listing: Listing) => void } & (
  | { listing: Listing; found?: undefined }
  | { found: ProbeResult; listing?: undefined }
);

export function useListingTerms({ listing, found, onDone }: ListingTarget) {
  const [terms, setTerms] = useState({
    name: listing?.thirdParty.name ?? "",
    description:
      listing?.thirdParty.description ?? (found?.thirdParty.description ?? "").slice(0, 500),
    category: listing?.thirdParty.category ?? "",
    maxPrice: listing?.maxPrice ?? found?.price ?? "",
  });
  const save = useMutation({
    mutationFn: () => {
      const { category, maxPrice } = terms;
      const body = {
        name: terms.name.trim(),
        description: terms.description.trim(),
        ...(category === "" ? {} : { category }),
        ...(maxPrice === "" ? {} : { maxPrice: canonical(maxPrice) }),
      };
      if (listing) return updateListing(listing.id, body);
      return createListing({ ...body, url: found.url, method: found.method });
    },
    onSuccess: async (saved) => {
      notifications.show({
        message: listing ? "Listing saved." : `${saved.thirdParty.name} is listed.`,
      });
      await invalidate.afterListing();
      onDone(saved);
    },
  });
  const { price, maximum } = listing ?? found ?? { price: "0" };
  const ceiling = parseUsdc(terms.maxPrice);
  return {
    terms,
    change: (part: Partial<typeof terms>): void => {
      setTerms({ ...terms, ...part });
    },
    save,
    ceilingError:
      ceiling !== undefined && ceiling < atomic(price)
        ? `The current price is ${maximum ? "up to " : ""}${formatUsdc(price)} USDC.`
        : undefined,
  };
}
