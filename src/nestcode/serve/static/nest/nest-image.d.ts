import { DecodedImage } from "./nest.js";

export * from "./nest.js";

/** `<nest-image src="photo.nest" budget="auto" alt="…">`: an image that sharpens as its stream arrives. */
export class NestImage extends HTMLElement {
  /** The error that ended loading, or null. */
  readonly error: Error | null;
}

/** The detail of the `frame` event. */
export interface FrameDetail {
  readonly bytes: number;
  readonly total: number;
  readonly complete: boolean;
  readonly image: DecodedImage;
}

declare global {
  interface HTMLElementTagNameMap {
    "nest-image": NestImage;
  }
}
