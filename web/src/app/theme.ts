import {
  createTheme,
  defaultVariantColorsResolver,
  localStorageColorSchemeManager,
  type MantineColorsTuple,
} from "@mantine/core";

/** Mantine requires ten shades; the colours on screen come from styles/tokens.css. */
const sea: MantineColorsTuple = [
  "#eef6f6",
  "#dcebeb",
  "#b9d8d9",
  "#8fc1c3",
  "#5fa5a8",
  "#2f8288",
  "#1c666c",
  "#0d4a50",
  "#0a3b40",
  "#072b2f",
];

export const theme = createTheme({
  primaryColor: "sea",
  primaryShade: 7,
  colors: { sea },
  fontFamily: "var(--font-sans)",
  fontFamilyMonospace: "var(--font-mono)",
  cursorType: "pointer",
  respectReducedMotion: true,
  defaultRadius: "md",
  // The text on a filled button; Mantine would make it white in both themes.
  variantColorResolver: (input) => ({
    ...defaultVariantColorsResolver(input),
    ...(input.variant === "filled" && { color: `var(--mantine-color-${input.color}-contrast)` }),
  }),
  components: {
    Alert: { defaultProps: { variant: "light" } },
    Badge: { defaultProps: { component: "span", variant: "light", color: "gray" } },
    Button: { defaultProps: { variant: "default" } },
    Group: { defaultProps: { gap: "xs" } },
    Paper: { defaultProps: { withBorder: true, radius: "lg" } },
    SegmentedControl: { defaultProps: { withItemsBorders: false } },
    TextInput: { defaultProps: { autoComplete: "off", spellCheck: false } },
    ActionIcon: { defaultProps: { variant: "subtle", color: "gray" } },
    Notification: { defaultProps: { closeButtonProps: { "aria-label": "Close" } } },
  },
});

/** The same storage key as public/theme.js, which sets the theme before this bundle has loaded. */
export const colorSchemeManager = localStorageColorSchemeManager({ key: "purser-theme" });
