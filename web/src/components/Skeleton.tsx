import { Skeleton as Bone, Stack } from "@mantine/core";
import type { ReactNode } from "react";

const SHAPES = {
  text: { h: 14, w: "60%" },
  title: { h: 28, w: "min(260px, 70%)" },
  figure: { h: 28, w: 120, maw: "100%" },
  row: { h: 64 },
  block: { h: 160 },
  chart: { h: 180 },
};

/** A placeholder in the size of the loading content, so that the layout does not move. */
export function Skeleton({
  shape = "text",
  count = 1,
}: {
  shape?: keyof typeof SHAPES;
  count?: number;
}): ReactNode {
  return Array.from({ length: count }, (_, index) => (
    <Bone key={index} {...SHAPES[shape]} aria-hidden="true" />
  ));
}

/** Wraps the skeletons of one region, so that a screen reader announces them once. */
export const Loading = ({ label, children }: { label: string; children: ReactNode }): ReactNode => (
  <Stack gap="xs" role="status" aria-label={`Loading ${label}`}>
    {children}
  </Stack>
);
